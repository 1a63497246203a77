-- KEYS pools; ARGV now or '', pool, retention ms. Apart from beat.lua: this key is in another slot.
local now, retention = now_ms(ARGV[1]), tonumber(ARGV[3])
redis.call('ZADD', KEYS[1], now, ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - retention)
redis.call('PEXPIRE', KEYS[1], retention)
