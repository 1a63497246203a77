-- The pool's ready replicas as placement sees them: what each said of itself, and its leases.

-- Until anyone in the pool has measured: about what one CPU worker does. The absolute size cancels
-- out of the comparison then, only the ratio counts: a KV token is released tenfold slower than
-- prefilled.
local PRIOR_PREFILL = 1000 -- tokens/s
local PRIOR_RELEASE = 100 -- tokens/s

local function owner_of(incarnation, name)
  return incarnation .. ':' .. name
end

-- What the replica `name` said of itself, and its load, and the context that its prompt tokens see in a
-- second, of which `weigh_prefills` makes work; `leaf` is the age of its oldest leaf, ms, of which
-- `weigh_leaves` makes a cost. Nil for a row of another version, or a broken one: while releases are
-- mixed, or whatever was written there, the others are placed on. One constructor, because a table that
-- grows later costs half as much again: with what place.lua adds these are 16 fields, which is where
-- Lua would double it.
local function read_replica(book, name, row, tree_prefix, now)
  local is_whole, $names(TERMS) = pcall(unpack_terms, row)
  if not is_whole then
    return nil
  end
  local owner = owner_of(incarnation, name)
  return {
    name = name, tree = tree_prefix .. owner, incarnation = incarnation, url = url,
    capacity = capacity_tokens, pinned = pinned_tokens, cached = cached_tokens,
    bytes_per_token = bytes_per_token, most = max_requests, load = load_of(book, owner),
    leaf = oldest_touch_ms > 0 and math.max(1, now - oldest_touch_ms) or 0,
    prefill = prefill_tokens_per_s, doubling = doubling_context,
    -- In a steady state what ends is what was decoded, and the prompts come on top.
    release = release_tokens_per_s > 0 and release_tokens_per_s or decode_tokens_per_s,
  }, prefill_context_per_s
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

-- Makes `prefill` the work that a replica does in a second, in tokens at the start of a prompt:
-- `doubling` tokens of context take as long as one such token.
local function weigh_prefills(ready, contexts)
  local usual_doubling = mean_of(ready, 'doubling', math.huge)
  for i, r in ipairs(ready) do
    r.doubling = r.doubling > 0 and r.doubling or usual_doubling
    r.prefill = r.prefill + contexts[i] / r.doubling
  end
end

-- Makes `leaf` what a token costs that a replica evicts, in seconds: computing it anew, if it is asked
-- for in as long as leaves stay unused in the pool, in the mean. What was not asked for in t is not
-- asked for in the next u with the chance t / (t + u), whatever the scale of time (a power law, as
-- reuse has). 0 where nothing is cached.
local function weigh_leaves(ready, usual_tokens)
  local sum, count = 0, 0
  for _, r in ipairs(ready) do
    if r.leaf > 0 then
      sum, count = sum + r.leaf, count + 1
    end
  end
  local stays = count > 0 and sum / count or 0
  for _, r in ipairs(ready) do
    r.leaf = r.leaf > 0 and stays / (r.leaf + stays) / usual_tokens or 0
  end
end

-- Replicas whose heartbeat is fresh and says ready, each with the load of its leases.
local function read_fleet(book, replicas_key, terms_key, tree_prefix, now)
  local names = redis.call('ZRANGEBYSCORE', replicas_key, now - $FRESH_MS, '+inf')
  if #names == 0 then
    return {}
  end
  read_all_loads(book)
  local ready, contexts = {}, {}
  for i, row in ipairs(redis.call('HMGET', terms_key, unpack(names))) do
    if row then -- without terms it starts or drains
      ready[#ready + 1], contexts[#contexts + 1] =
        read_replica(book, names[i], row, tree_prefix, now)
    end
  end
  local usual_tokens = mean_of(ready, 'prefill', PRIOR_PREFILL) -- whatever they saw
  weigh_prefills(ready, contexts)
  local usual_prefill = mean_of(ready, 'prefill', PRIOR_PREFILL)
  local usual_release = mean_of(ready, 'release', PRIOR_RELEASE)
  for _, r in ipairs(ready) do
    r.prefill = r.prefill > 0 and r.prefill or usual_prefill
    r.release = r.release > 0 and r.release or usual_release
  end
  weigh_leaves(ready, usual_tokens)
  return ready
end
