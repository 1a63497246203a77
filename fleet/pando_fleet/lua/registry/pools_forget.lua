local $names(ForgetNames) = $arguments(ForgetNames)
for i = $length(ForgetNames) + 1, #ARGV do
  local last_ms = redis.call('ZSCORE', pools, ARGV[i])
  if last_ms and tonumber(last_ms) <= heard_ms then
    redis.call('ZREM', pools, ARGV[i])
  end
end
