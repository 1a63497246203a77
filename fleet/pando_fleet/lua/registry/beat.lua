-- Adds to the terms when the tree's oldest leaf was touched: reading it here, twice a second, costs
-- placements nothing. Also cuts the tree if Redis's memory runs short.
local $names(Beat) = $arguments(Beat)
local behind = $length(Beat) + 1
local $names(Terms) = $arguments(Terms, behind)
for _, key in ipairs({ replicas, beats, terms }) do
  redis.call('PERSIST', key) -- workers of the previous release set a TTL; see also memory_ops.lua
end
local other = other_incarnation(beats, replica, incarnation)
if other then
  local heard = tonumber(redis.call('ZSCORE', replicas, replica) or 0)
  -- A draining replica gives up its name, and two replicas cannot have the same URL.
  if heard >= now - $FRESH_MS and other.url ~= url and other.state ~= 'draining' then
    redis.call('HSET', rival, 'url', url)
    redis.call('PEXPIRE', rival, $FRESH_MS)
    return { 'taken', tostring(other.url), tostring(heard) }
  end
  -- Nobody reads the tree of the old incarnation any more, but it would take memory from others.
  local owner = incarnation .. ':' .. replica
  local prefix = string.sub(tree, 1, #tree - #owner)
  redis.call('UNLINK', prefix .. other.incarnation .. ':' .. replica)
end
make_room(tree)
redis.call('ZADD', replicas, now, replica)
redis.call('HSET', beats, replica, heartbeat)
if slots ~= '' then
  redis.call('PERSIST', adapters)
  redis.call('HSET', adapters, replica, slots)
  write_places(adapters, replica, held)
else
  forget_adapters(adapters, replica)
end
if is_ready and withheld(marks, replica, now) == '' then
  oldest_touch_ms = oldest_touch(tree)
  redis.call('HSET', terms, replica, $pack(TERMS))
else
  redis.call('HDEL', terms, replica)
end
forget_silent(replicas, beats, terms, adapters, now)
redis.call('PEXPIRE', tree, $TREE_TTL_MS)
local wanted_by = redis.call('HGET', rival, 'url')
if wanted_by then
  redis.call('DEL', rival)
  return { 'wanted', wanted_by }
end
