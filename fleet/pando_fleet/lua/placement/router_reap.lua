-- A lease's id begins with its router's name and a dash.
local LOOKED_AT = 256 -- leases per call, so that no call is slow

local $names(Reap) = $arguments(Reap)
local last_ms = redis.call('ZSCORE', routers, router)
if not last_ms or now - last_ms <= $ROUTER_SILENCE_MS then
  return false
end
local book = open_book(leases, parts, loads)
local found = redis.call('ZSCAN', leases, cursor, 'MATCH', router .. '-*', 'COUNT', LOOKED_AT)
for i = 1, #found[2], 2 do
  end_lease(book, found[2][i])
end
close_book(book)
if found[1] == '0' then
  redis.call('ZREM', routers, router)
  redis.call('HDEL', queues, router)
end
return { found[1], #found[2] / 2 }
