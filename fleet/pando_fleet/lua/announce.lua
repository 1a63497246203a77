local $names(Announce) = $arguments(Announce)
redis.call('ZADD', pools, now, pool)
redis.call('ZREMRANGEBYSCORE', pools, '-inf', now - $RETENTION_MS)
redis.call('PEXPIRE', pools, $RETENTION_MS)
