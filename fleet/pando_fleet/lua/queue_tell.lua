-- Records how long one router's queue is, and forgets routers that have fallen silent.
--
-- KEYS queues; ARGV now or '', router, requests waiting, ms that the first has waited, silence ms,
-- tokens waiting. A row is when it was told, the requests, when the first began to wait, and the
-- tokens; packed, times in ms.
local now, silence = now_ms(ARGV[1]), tonumber(ARGV[5])
local waiting = tonumber(ARGV[3])
if waiting > 0 then
  redis.call('HSET', KEYS[1], ARGV[2], struct.pack('>dddd', now, waiting, now - ARGV[4], ARGV[6]))
else
  redis.call('HDEL', KEYS[1], ARGV[2])
end
local rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  local row = rows[i + 1]
  if #row < 8 or struct.unpack('>d', row) < now - silence then
    redis.call('HDEL', KEYS[1], rows[i])
  end
end
redis.call('PEXPIRE', KEYS[1], silence)
