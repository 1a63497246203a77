-- Records one heartbeat and forgets replicas silent for longer than the retention.
--
-- KEYS replicas, beats, terms, tree, marks
-- ARGV now or '', replica, heartbeat, terms or '', retention ms. To the terms is added when the tree's
-- oldest leaf was touched: read here, twice a second, it costs placements nothing.
local FORGET_BATCH = 64

local now, replica, retention = now_ms(ARGV[1]), ARGV[2], tonumber(ARGV[5])
redis.call('ZADD', KEYS[1], now, replica)
redis.call('HSET', KEYS[2], replica, ARGV[3])
if ARGV[4] ~= '' and withheld(KEYS[5], replica, now) == '' then
  redis.call('HSET', KEYS[3], replica, ARGV[4] .. struct.pack('>d', oldest_touch(KEYS[4])))
else
  redis.call('HDEL', KEYS[3], replica)
end
local lost = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - retention, 'LIMIT', 0, FORGET_BATCH)
if #lost > 0 then
  redis.call('ZREM', KEYS[1], unpack(lost))
  redis.call('HDEL', KEYS[2], unpack(lost))
  redis.call('HDEL', KEYS[3], unpack(lost))
end
for i = 1, 3 do
  redis.call('PEXPIRE', KEYS[i], retention)
end
redis.call('PEXPIRE', KEYS[4], TREE_TTL_MS)
