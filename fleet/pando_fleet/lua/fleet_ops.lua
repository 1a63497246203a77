-- The pool's ready replicas as placement sees them: what each said of itself, and its leases.

-- Until anyone in the pool has measured: about what one CPU worker does. The absolute size cancels
-- out of the comparison then, only the ratio counts: a KV token is released tenfold slower than
-- prefilled.
local PRIOR_PREFILL = 1000 -- tokens/s
local PRIOR_RELEASE = 100 -- tokens/s

local TERMS_VERSION = 1 -- the first byte of a row; registry.py writes it

-- What the replica `name` said of itself, and its load. Nil for a row of another version, or a broken
-- one: while releases are mixed, or whatever was written there, the others are placed on. One
-- constructor, because a table that grows later costs half as much again.
local function read_replica(book, name, row, tree_prefix)
  if row:byte(1) ~= TERMS_VERSION then
    return nil
  end
  local is_whole, capacity, pinned, prefill, decode, release, bytes_per_token, most, incarnation,
    url = pcall(struct.unpack, '>dddddddss', row, 2)
  if not is_whole then
    return nil
  end
  local owner = incarnation .. ':' .. name
  return {
    name = name, owner = owner, tree = tree_prefix .. owner, incarnation = incarnation, url = url,
    capacity = capacity, pinned = pinned, bytes_per_token = bytes_per_token,
    prefill = prefill, most = most, load = load_of(book, owner),
    -- In a steady state what ends is what was decoded, and the prompts come on top.
    release = release > 0 and release or decode,
  }
end

local function mean_of(ready, rate, prior)
  local sum, count = 0, 0
  for _, r in ipairs(ready) do
    if r[rate] > 0 then
      sum, count = sum + r[rate], count + 1
    end
  end
  return count > 0 and sum / count or prior
end

-- Replicas whose heartbeat is younger than `since` and says ready, each with the load of its leases.
local function read_fleet(book, replicas_key, terms_key, tree_prefix, since)
  local names = redis.call('ZRANGEBYSCORE', replicas_key, since, '+inf')
  if #names == 0 then
    return {}
  end
  read_all_loads(book)
  local ready = {}
  for i, row in ipairs(redis.call('HMGET', terms_key, unpack(names))) do
    -- No terms: it starts or drains.
    ready[#ready + 1] = row and read_replica(book, names[i], row, tree_prefix) or nil
  end
  local usual_prefill = mean_of(ready, 'prefill', PRIOR_PREFILL)
  local usual_release = mean_of(ready, 'release', PRIOR_RELEASE)
  for _, r in ipairs(ready) do
    r.prefill = r.prefill > 0 and r.prefill or usual_prefill
    r.release = r.release > 0 and r.release or usual_release
  end
  return ready
end
