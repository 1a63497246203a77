-- KEYS queues; ARGV now or '', silence ms. Returns requests waiting and ms that the first has waited.
local now, silence = now_ms(ARGV[1]), tonumber(ARGV[2])
local requests, first = 0, now
for _, row in ipairs(redis.call('HVALS', KEYS[1])) do
  local told, waiting, since = struct.unpack('>ddd', row)
  if told >= now - silence then
    requests = requests + waiting
    first = math.min(first, since)
  end
end
return { requests, now - first }
