-- Leases of one pool, and what they sum to. `leases` (sorted set) says when each ends, `parts`
-- (hash) what it reserves, `loads` (hash) the sums of the parts per owner, so that placing reads
-- one row a replica, not its leases. An owner is "<incarnation>:<replica>".
--
-- A part is prefill tokens, output tokens and waiting (1 until the first token), then its owner; a
-- load is the same three sums and the number of leases. Packed: reading 64 loads is twice as fast
-- as text.

local LEASE_GRACE_MS = 60000 -- keys outlive their last lease by this
local EXPIRE_BATCH = 64 -- leases ended at one call: bounded work, and one call adds only one lease

local function lease_keys(first)
  return { leases = KEYS[first], parts = KEYS[first + 1], loads = KEYS[first + 2] }
end

-- Sums are clamped: memory pressure may make Redis evict one of the keys and not the others.
local function add_load(keys, owner, prefill, output, waiting, requests)
  local row = redis.call('HGET', keys.loads, owner)
  if row then
    local p, o, w, r = struct.unpack('>dddd', row)
    prefill, output = math.max(0, p + prefill), math.max(0, o + output)
    waiting, requests = math.max(0, w + waiting), r + requests
  end
  if requests > 0 then
    redis.call('HSET', keys.loads, owner, struct.pack('>dddd', prefill, output, waiting, requests))
  else
    redis.call('HDEL', keys.loads, owner)
  end
end

local function end_lease(keys, lease)
  local part = redis.call('HGET', keys.parts, lease)
  redis.call('ZREM', keys.leases, lease)
  redis.call('HDEL', keys.parts, lease)
  if part then
    local prefill, output, waiting, owner = struct.unpack('>ddds', part)
    add_load(keys, owner, -prefill, -output, -waiting, -1)
  end
end

-- The replica has seen the request through its prefill: from here on its heartbeat tells its share.
local function end_prefill(keys, lease)
  local part = redis.call('HGET', keys.parts, lease)
  if part then
    local prefill, output, waiting, owner = struct.unpack('>ddds', part)
    redis.call('HSET', keys.parts, lease, struct.pack('>ddds', 0, 0, 0, owner))
    add_load(keys, owner, -prefill, -output, -waiting, 0)
  end
end

local function end_expired_leases(keys, now)
  local expired = redis.call('ZRANGEBYSCORE', keys.leases, '-inf', now, 'LIMIT', 0, EXPIRE_BATCH)
  for _, lease in ipairs(expired) do
    end_lease(keys, lease)
  end
  if redis.call('EXISTS', keys.leases) == 0 then
    redis.call('DEL', keys.parts, keys.loads) -- nothing leased, nothing owed
  end
end

-- A lease of the same name is replaced: a call that is sent again after a lost answer counts once.
local function add_lease(keys, lease, owner, prefill, output, now, lasts_ms)
  end_lease(keys, lease)
  redis.call('ZADD', keys.leases, now + lasts_ms, lease)
  redis.call('HSET', keys.parts, lease, struct.pack('>ddds', prefill, output, 1, owner))
  add_load(keys, owner, prefill, output, 1, 1)
  local ttl = lasts_ms + LEASE_GRACE_MS
  if redis.call('PTTL', keys.leases) < ttl then
    for _, key in pairs(keys) do
      redis.call('PEXPIRE', key, ttl)
    end
  end
end
