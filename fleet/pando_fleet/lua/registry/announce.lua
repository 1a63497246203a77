local $names(Announce) = $arguments(Announce)
redis.call('PERSIST', pools) -- workers of the previous release set a TTL; see also memory_ops.lua
redis.call('ZADD', pools, now, pool)
