-- The incarnation lasts as long as the identity. A new value changes the stored one more, the more
-- samples it has.
local KEPT = 0.9 -- weight of the old value, against one new sample

local $names(Agree) = $arguments(Agree)
redis.call('PEXPIRE', record, $UPSTREAM_KEPT_MS) -- first, because memory may be full: memory_ops.lua
if redis.call('HGET', record, 'identity') ~= identity then
  redis.call('DEL', record) -- another model has other rates
  redis.call('HSET', record, 'identity', identity)
end
redis.call('HSETNX', record, 'incarnation', proposed)

-- The stored value of this name, after adding `samples` samples of `found`.
local function agree(name, found, samples)
  local kept = tonumber(redis.call('HGET', record, name) or '') or 0
  if not (kept >= 0 and kept < math.huge) then
    kept = 0 -- an invalid rate would otherwise stay for ever
  end
  if samples > 0 then
    kept = kept == 0 and found or found + (kept - found) * KEPT ^ samples
    redis.call('HSET', record, name, string.format('%.17g', kept))
  end
  return string.format('%.17g', kept)
end

local agreed = {
  redis.call('HGET', record, 'incarnation'),
  agree('prefill', prefill, prefill_samples),
  agree('decode', decode, decode_samples),
  agree('bytes_per_token', bytes_per_token, bytes_per_token_samples),
}
redis.call('PEXPIRE', record, $UPSTREAM_KEPT_MS)
return agreed
