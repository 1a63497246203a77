-- To the terms is added when the tree's oldest leaf was touched: read here, twice a second, it costs
-- placements nothing. What a tree may fill of the memory is looked at here, too.
local $names(Beat) = $arguments(Beat)
local behind = $length(Beat) + 1
local $names(Terms) = $arguments(Terms, behind)
for _, key in ipairs({ replicas, beats, terms }) do
  redis.call('PERSIST', key) -- a worker of the release before gives it a TTL; see also memory_ops.lua
end
local other = other_incarnation(beats, replica, incarnation)
if other then
  local heard = tonumber(redis.call('ZSCORE', replicas, replica) or 0)
  -- Who drains leaves its name to whoever wants it, and at one URL there is one only.
  if heard >= now - $FRESH_MS and other.url ~= url and other.state ~= 'draining' then
    redis.call('HSET', rival, 'url', url)
    redis.call('PEXPIRE', rival, $FRESH_MS)
    return { 'taken', tostring(other.url), tostring(heard) }
  end
  -- Its tree, which nobody reads any more, would keep room from living ones.
  local owner = incarnation .. ':' .. replica
  local prefix = string.sub(tree, 1, #tree - #owner)
  redis.call('UNLINK', prefix .. other.incarnation .. ':' .. replica)
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
local wanted_by = redis.call('HGET', rival, 'url')
if wanted_by then
  redis.call('DEL', rival)
  return { 'wanted', wanted_by }
end
