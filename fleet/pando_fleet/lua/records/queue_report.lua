local $names(ReportQueue) = $arguments(ReportQueue)
redis.call('PERSIST', queues) -- routers of the previous release set a TTL; see also memory_ops.lua
if requests > 0 then
  local reported_ms, since_ms = now, now - waited_ms
  redis.call('HSET', queues, router, $pack(QUEUE))
else
  redis.call('HDEL', queues, router)
end
local rows = redis.call('HGETALL', queues)
for i = 1, #rows, 2 do
  local is_whole, reported_ms = pcall(unpack_queue, rows[i + 1])
  if not is_whole or reported_ms < now - $SILENCE_MS then
    redis.call('HDEL', queues, rows[i])
  end
end
