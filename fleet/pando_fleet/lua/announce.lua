local $names(Announce) = $arguments(Announce)
redis.call('PERSIST', pools) -- a worker of the release before gives it a TTL; see also memory_ops.lua
redis.call('ZADD', pools, now, pool)
