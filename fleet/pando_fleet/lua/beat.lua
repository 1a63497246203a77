-- To the terms is added when the tree's oldest leaf was touched: read here, twice a second, it costs
-- placements nothing. What a tree may fill of the memory is looked at here, too.
local $names(Beat) = $arguments(Beat)
local behind = $length(Beat) + 1
local $names(Terms) = $arguments(Terms, behind)

-- The tree of the incarnation before, which nobody reads any more, would keep room from living ones.
local function forget_predecessor()
  local row = redis.call('HGET', beats, replica)
  if not row or string.find(row, '"incarnation":"' .. incarnation .. '"', 1, true) then
    return
  end
  local is_json, beat = pcall(cjson.decode, row)
  local before = is_json and type(beat) == 'table' and beat.incarnation
  if type(before) == 'string' and before ~= incarnation then
    local owner = incarnation .. ':' .. replica
    redis.call('UNLINK', string.sub(tree, 1, #tree - #owner) .. before .. ':' .. replica)
  end
end

for _, key in ipairs({ replicas, beats, terms }) do
  redis.call('PERSIST', key) -- a worker of the release before gives it a TTL; see also memory_ops.lua
end
forget_predecessor()
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
