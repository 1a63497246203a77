-- KEYS marks; ARGV now or ''.
-- Returns for each mark its name, the milliseconds left to it (nil for what is no mark), and its JSON.
local now = now_ms(ARGV[1])
local rows, found = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #rows, 2 do
  local mark = decoded_mark(rows[i + 1])
  found[#found + 1] = { rows[i], mark and mark.ends_ms - now or false, rows[i + 1] }
end
return found
