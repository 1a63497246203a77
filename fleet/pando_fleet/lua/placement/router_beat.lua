-- A router that is silent for $ROUTER_SILENCE_MS counts as dead, unless all were silent: then Redis
-- hung or refused writes, or its clock changed, so that time counts for none of them.
local MOST_DEAD = 8 -- dead routers in one answer

local $names(BeatRouter) = $arguments(BeatRouter)
for _, key in ipairs(KEYS) do
  redis.call('PERSIST', key) -- routers of the previous release set a TTL; see also memory_ops.lua
end
local book = open_book(leases, parts, loads)
mend_book(book, routers, now)
close_book(book)
local last_ms = redis.call('ZSCORE', routers, router)
local newest_ms = redis.call('ZRANGE', routers, -1, -1, 'WITHSCORES')[2]
local gap_ms = newest_ms and now - newest_ms or 0
if gap_ms > $SHARED_SILENCE_MS or gap_ms < 0 then
  for _, each in ipairs(redis.call('ZRANGE', routers, 0, -1)) do
    redis.call('ZINCRBY', routers, gap_ms, each)
  end
end
redis.call('ZADD', routers, now, router)
local is_unknown = not last_ms or math.abs(now - last_ms) > $ROUTER_SILENCE_MS
local silent = '(' .. now - $ROUTER_SILENCE_MS
return {
  is_unknown and 1 or 0,
  unpack(redis.call('ZRANGEBYSCORE', routers, '-inf', silent, 'LIMIT', 0, MOST_DEAD)),
}
