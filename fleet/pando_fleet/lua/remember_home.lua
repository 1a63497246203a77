-- Remembers who answered under a name, and forgets the names used longest ago where there are too
-- many.
--
-- KEYS ages, homes; ARGV now or '', incarnation, names at most, retention ms, name, name, ...
local now, retention = now_ms(ARGV[1]), tonumber(ARGV[4])
for i = 5, #ARGV do
  redis.call('ZADD', KEYS[1], now, ARGV[i])
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[2])
end
local over = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[3])
if over > 0 then
  local gone = redis.call('ZPOPMIN', KEYS[1], over)
  for i = 1, #gone, 2 do
    redis.call('HDEL', KEYS[2], gone[i])
  end
end
redis.call('PEXPIRE', KEYS[1], retention)
redis.call('PEXPIRE', KEYS[2], retention)
