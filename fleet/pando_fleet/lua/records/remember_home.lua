local $names(RememberHome) = $arguments(RememberHome)
for i = $length(RememberHome) + 1, #ARGV do
  redis.call('ZADD', ages, now, ARGV[i])
  redis.call('HSET', homes, ARGV[i], incarnation)
end
local over = redis.call('ZCARD', ages) - max_names
if over > 0 then
  local gone = redis.call('ZPOPMIN', ages, over)
  for i = 1, #gone, 2 do
    redis.call('HDEL', homes, gone[i])
  end
end
redis.call('PEXPIRE', ages, $HOMES_KEPT_MS)
redis.call('PEXPIRE', homes, $HOMES_KEPT_MS)
