-- Forgets replicas that have been silent for longer than the retention. Their keys have no TTL, because
-- Redis might evict them like trees.
local FORGET_BATCH = 1000 -- per call: about a millisecond

local function forget_silent(replicas, beats, terms, adapters, now)
  local oldest = now - $RETENTION_MS
  local lost = redis.call('ZRANGEBYSCORE', replicas, '-inf', oldest, 'LIMIT', 0, FORGET_BATCH)
  if #lost > 0 then
    redis.call('ZREM', replicas, unpack(lost))
    redis.call('HDEL', beats, unpack(lost))
    redis.call('HDEL', terms, unpack(lost))
    for _, replica in ipairs(lost) do
      forget_adapters(adapters, replica)
    end
  end
end

-- The last heartbeat under this name, if it was another incarnation's.
local function other_incarnation(beats, name, incarnation)
  local beat = redis.call('HGET', beats, name)
  if not beat or string.find(beat, '"incarnation":"' .. incarnation .. '"', 1, true) then
    return nil -- nearly always, and without decoding
  end
  local is_json, other = pcall(cjson.decode, beat)
  local before = is_json and type(other) == 'table' and other.incarnation
  if type(before) == 'string' and before ~= incarnation then
    return other
  end
  return nil
end
