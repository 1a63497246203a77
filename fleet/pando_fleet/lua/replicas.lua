-- KEYS replicas, beats; ARGV now or '', retention ms. Returns age ms and heartbeat of each replica.
local now = now_ms(ARGV[1])
local heard = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now - ARGV[2], '+inf', 'WITHSCORES')
local found = {}
for i = 1, #heard, 2 do
  local beat = redis.call('HGET', KEYS[2], heard[i])
  if beat then
    found[#found + 1] = { math.max(0, now - heard[i + 1]), beat }
  end
end
return found
