-- The pool's ready replicas as placement sees them: their heartbeats' terms and their leases' loads.
-- A heartbeat is fresh for $FRESH_MS; the same age makes a replica lost in the routers' view
-- (`pando_router/fleet_view/snapshot.py`), which knows more signs of life.


-- The rates until any replica in the pool has measured: about those of one CPU worker. The absolute
-- size then cancels out in comparisons; only the ratio matters: KV tokens are released ten times
-- slower than prefilled.
local PRIOR_PREFILL = 1000 -- tokens/s
local PRIOR_RELEASE = 100 -- tokens/s

local function owner_of(incarnation, name)
  return incarnation .. ':' .. name
end

-- The terms and the load of the replica `name`; the context that its prompt tokens see per second, which
-- `weigh_prefills` converts to work; and the tokens and the context of prompts that it has begun. `leaf`
-- is the age of its oldest leaf in ms, which `weigh_leaves` converts to a cost. Nil for a row of another
-- version or a broken one, as while releases are mixed; placement then uses the other replicas. One
-- constructor, because a table that grows later costs half as much again: with the fields that place.lua
-- adds there are 16, where Lua would double it.
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
    -- In a steady state ended requests release the tokens that were decoded, plus their prompts.
    release = release_tokens_per_s > 0 and release_tokens_per_s or decode_tokens_per_s,
  }, prefill_context_per_s, begun_tokens, begun_context
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

-- Converts `prefill` to the work that a replica does per second, in tokens at the start of a prompt:
-- `doubling` tokens of context take as long as one such token.
local function weigh_prefills(ready, contexts)
  local usual_doubling = mean_of(ready, 'doubling', math.huge)
  for i, r in ipairs(ready) do
    r.doubling = r.doubling > 0 and r.doubling or usual_doubling
    r.prefill = r.prefill + contexts[i] / r.doubling
  end
end

-- Converts `leaf` to the cost of evicting a token, in seconds: the time to compute it again, times the
-- probability that it is needed within the pool's mean age of unused leaves. A token not used for t is
-- unused for the next u with probability t / (t + u), on any time scale (reuse follows a power law).
-- 0 if nothing is cached.
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

-- The replicas whose heartbeat is fresh and ready, each with the load of its leases; and by replica how
-- much of the work of these leases is done although they have no first token, where it is any.
local function read_fleet(book, replicas_key, terms_key, tree_prefix, now)
  local names = redis.call('ZRANGEBYSCORE', replicas_key, now - $FRESH_MS, '+inf')
  if #names == 0 then
    return {}, {}
  end
  read_all_loads(book)
  local ready, contexts, begun = {}, {}, {}
  for i, row in ipairs(redis.call('HMGET', terms_key, unpack(names))) do
    if row then -- a starting or draining replica has no terms
      local r, context, begun_tokens, begun_context =
        read_replica(book, names[i], row, tree_prefix, now)
      if r then
        ready[#ready + 1], contexts[#contexts + 1] = r, context
        if begun_tokens > 0 then
          begun[r] = { tokens = begun_tokens, context = begun_context }
        end
      end
    end
  end
  local usual_tokens = mean_of(ready, 'prefill', PRIOR_PREFILL) -- regardless of context
  weigh_prefills(ready, contexts)
  local usual_prefill = mean_of(ready, 'prefill', PRIOR_PREFILL)
  local usual_release = mean_of(ready, 'release', PRIOR_RELEASE)
  for _, r in ipairs(ready) do
    r.prefill = r.prefill > 0 and r.prefill or usual_prefill
    r.release = r.release > 0 and r.release or usual_release
  end
  weigh_leaves(ready, usual_tokens)
  for r, each in pairs(begun) do
    begun[r] = each.tokens + each.context / r.doubling
  end
  return ready, begun
end
