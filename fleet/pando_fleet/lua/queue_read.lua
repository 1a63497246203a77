-- KEYS queues; ARGV now or ''. Returns now, and router and row of each queue, see queue_tell.lua.
return { now_ms(ARGV[1]), redis.call('HGETALL', KEYS[1]) }
