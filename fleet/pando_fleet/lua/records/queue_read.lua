local $names(ReadQueues) = $arguments(ReadQueues)
return { now, redis.call('HGETALL', queues) }
