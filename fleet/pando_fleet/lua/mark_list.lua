-- KEYS marks; ARGV now or ''. Returns for each mark the milliseconds left to it, and its JSON.
local now = now_ms(ARGV[1])
local found = {}
for _, encoded in ipairs(redis.call('HVALS', KEYS[1])) do
  found[#found + 1] = { tostring(cjson.decode(encoded).ends_ms - now), encoded }
end
return found
