local $names(TellQueue) = $arguments(TellQueue)
redis.call('PERSIST', queues) -- a router of the release before gives it a TTL; see also memory_ops.lua
if requests > 0 then
  local told_ms, since_ms = now, now - waited_ms
  redis.call('HSET', queues, router, $pack(QUEUE))
else
  redis.call('HDEL', queues, router)
end
local rows = redis.call('HGETALL', queues)
for i = 1, #rows, 2 do
  local is_whole, told_ms = pcall(unpack_queue, rows[i + 1])
  if not is_whole or told_ms < now - $SILENCE_MS then
    redis.call('HDEL', queues, rows[i])
  end
end
