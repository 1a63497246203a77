local $names(ListMarks) = $arguments(ListMarks)
local rows, found = redis.call('HGETALL', marks), {}
for i = 1, #rows, 2 do
  local mark = decoded_mark(rows[i + 1])
  found[#found + 1] = { rows[i], mark and mark.ends_ms - now or false, rows[i + 1] }
end
return found
