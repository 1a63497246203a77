-- KEYS replicas, beats, marks; ARGV now or '', retention ms.
-- Returns name, age ms, heartbeat, and the mark that withholds it ('' for none) of each replica.
local now = now_ms(ARGV[1])
local heard = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now - ARGV[2], '+inf', 'WITHSCORES')
local found = {}
for i = 1, #heard, 2 do
  local name = heard[i]
  local beat = redis.call('HGET', KEYS[2], name)
  if beat then
    found[#found + 1] = { name, math.max(0, now - heard[i + 1]), beat, withheld(KEYS[3], name, now) }
  end
end
return found
