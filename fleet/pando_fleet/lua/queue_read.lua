-- KEYS queues; ARGV now or '', silence ms. 
-- Returns requests waiting, ms that the first has waited, and tokens waiting.
local now, silence = now_ms(ARGV[1]), tonumber(ARGV[2])
local requests, first, tokens = 0, now, 0
for _, row in ipairs(redis.call('HVALS', KEYS[1])) do
  local told, waiting, since = struct.unpack('>ddd', row)
  if told >= now - silence then
    requests = requests + waiting
    first = math.min(first, since)
    if #row >= 32 then -- routers told no tokens once
      tokens = tokens + struct.unpack('>d', row, 25)
    end
  end
end
return { requests, now - first, tokens }
