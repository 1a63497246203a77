local $names(CheckWrites) = $arguments(CheckWrites)
redis.call('ZADD', replicas, 'XX', 0, '')
