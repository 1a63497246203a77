-- To the terms is added when the tree's oldest leaf was touched: read here, twice a second, it costs
-- placements nothing. What a tree may fill of the memory is looked at here, too.
local $names(Beat) = $arguments(Beat)
local behind = $length(Beat) + 1
local $names(Terms) = $arguments(Terms, behind)
for _, key in ipairs({ replicas, beats, terms }) do
  redis.call('PERSIST', key) -- a worker of the release before gives it a TTL; see also memory_ops.lua
end
make_room(tree)
redis.call('ZADD', replicas, now, replica)
redis.call('HSET', beats, replica, heartbeat)
if is_ready and withheld(marks, replica, now) == '' then
  oldest_touch_ms = oldest_touch(tree)
  redis.call('HSET', terms, replica, $pack(TERMS))
else
  redis.call('HDEL', terms, replica)
end
forget_silent(replicas, beats, terms, now)
redis.call('PEXPIRE', tree, $TREE_TTL_MS)
