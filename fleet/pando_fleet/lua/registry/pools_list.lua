local $names(ListPools) = $arguments(ListPools)
local oldest = now - $RETENTION_MS
local heard = redis.call('ZRANGEBYSCORE', pools, '(' .. oldest, '+inf')
return { oldest, heard, redis.call('ZRANGEBYSCORE', pools, '-inf', oldest) }
