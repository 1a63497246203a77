-- To the terms is added when the tree's oldest leaf was touched: read here, twice a second, it costs
-- placements nothing. Replicas that are silent for longer than the retention are forgotten.
local FORGET_BATCH = 64

local $names(Beat) = $arguments(Beat)
local behind = $length(Beat) + 1
local $names(Terms) = $arguments(Terms, behind)
redis.call('ZADD', replicas, now, replica)
redis.call('HSET', beats, replica, heartbeat)
if is_ready and withheld(marks, replica, now) == '' then
  oldest_touch_ms = oldest_touch(tree)
  redis.call('HSET', terms, replica, $pack(TERMS))
else
  redis.call('HDEL', terms, replica)
end
local oldest = now - $RETENTION_MS
local lost = redis.call('ZRANGEBYSCORE', replicas, '-inf', oldest, 'LIMIT', 0, FORGET_BATCH)
if #lost > 0 then
  redis.call('ZREM', replicas, unpack(lost))
  redis.call('HDEL', beats, unpack(lost))
  redis.call('HDEL', terms, unpack(lost))
end
for _, key in ipairs({ replicas, beats, terms }) do
  redis.call('PEXPIRE', key, $RETENTION_MS)
end
redis.call('PEXPIRE', tree, $TREE_TTL_MS)
