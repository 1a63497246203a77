-- What routers that probe the same foreign engine agree on: which incarnation it is, and how fast.
--
-- KEYS record
-- ARGV identity, incarnation proposed, ms to keep, then for prefill rate, decode rate and bytes per
--      token each: what the router found, and in how many new samples.
--
-- The incarnation stays as long as the identity does. What is found moves what is kept the further
-- the more samples it stands on. Returns incarnation, prefill, decode, bytes per token.
local KEPT = 0.9 -- of the old value, against one new sample

local record, names = KEYS[1], { 'prefill', 'decode', 'bytes_per_token' }
if redis.call('HGET', record, 'identity') ~= ARGV[1] then
  redis.call('DEL', record) -- another model has other rates
  redis.call('HSET', record, 'identity', ARGV[1])
end
redis.call('HSETNX', record, 'incarnation', ARGV[2])
local agreed = { redis.call('HGET', record, 'incarnation') }
for i, name in ipairs(names) do
  local found, samples = tonumber(ARGV[2 + 2 * i]), tonumber(ARGV[3 + 2 * i])
  local kept = tonumber(redis.call('HGET', record, name) or '') or 0
  if not (kept >= 0 and kept < math.huge) then
    kept = 0 -- no rate at all, which would stay for ever
  end
  if samples > 0 then
    kept = kept == 0 and found or found + (kept - found) * KEPT ^ samples
    redis.call('HSET', record, name, string.format('%.17g', kept))
  end
  agreed[i + 1] = string.format('%.17g', kept)
end
redis.call('PEXPIRE', record, ARGV[3])
return agreed
