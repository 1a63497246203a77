-- Chooses a replica for each of some prompts and, unless only asked to explain, reserves it. The cost
-- and its terms are defined here and in fleet/README.md; the other half is Python: `Terms` and
-- `Candidate` in `redis/layout/rows.py` name them, `placement/placer.py` sends the asks.
--
-- Prompts that arrive in one turn of a router's loop are sent together: the fleet is read once, and
-- each decision sees the leases of those before it.
--
-- Full replicas are among the candidates, but marked: they are never chosen, but may hold the most. A
-- tree's key is built here, because the living replicas are read here; it has the pool's hash tag like
-- every key in KEYS, so in a cluster it is in the slot that the script was sent to.

local floor, min, max = math.floor, math.min, math.max
local $names(Place) = $arguments(Place)
if not $words(Mode)[mode] then
  return redis.error_reply('unknown mode of placement: ' .. mode)
end
local explain = mode ~= $Mode.PLACE
if mode ~= $Mode.EXPLAIN then
  redis.call('PERSIST', replicas) -- so that leases can be written with full memory: memory_ops.lua
end
local book = open_book(leases, parts, loads)
end_expired_leases(book, now)
local ready, begun = read_fleet(book, replicas, terms, tree_prefix, now)

local there = 0 -- requests at ready replicas, plus one per replica
local of_adapters, slots, usual = nil, nil, nil -- once a prompt needs an adapter; slots by replica
local delays = nil -- by replica, seconds that this prompt's adapter costs there, if it needs one
local usual_who = 2 -- requests that work delays at a replica, in the pool's mean; see `who` in cost_of
local pool_token = 0 -- seconds that others lose per token of work, while all replicas are busy

-- The leased work at `r` that is still to be done.
local function backlog_of(r)
  return max(0, r.load.work - (begun[r] or 0))
end

-- Computes the parts of the cost that depend on `r` only, once for all prompts.
local function weigh(r)
  local load = r.load
  r.wait = backlog_of(r) / r.prefill
  -- Leases that wait for their first token are not in the heartbeat's pinned tokens yet.
  r.over = r.capacity > 0 and r.pinned + load.room - r.capacity or -math.huge
end

local function weigh_pool()
  local waiting, least, rates = 0, math.huge, 0
  there = #ready
  for i = 1, #ready do
    local r = ready[i]
    local load = r.load
    there, waiting, rates = there + load.requests, waiting + load.waiting, rates + r.prefill
    if load.waiting < least then
      least = load.waiting
    end
  end
  pool_token = least * (#ready + waiting) / rates
  usual_who = 2 + waiting / #ready -- itself, the mean of coming_to, which is 1, and those that wait
end

local function weigh_all()
  for _, r in ipairs(ready) do
    weigh(r)
  end
  weigh_pool()
end

-- Expected arrivals at `r` while one request arrives per replica: r's share of the present requests,
-- with one more per replica, so that a few requests have little influence.
local function coming_to(r)
  return (1 + r.load.requests) * #ready / there
end

-- The work of computing the last `uncached` tokens of a prompt, in tokens at the start of a prompt:
-- each token counts as 1, plus 1 for every `doubling` tokens that it sees, including itself.
local function work_of(r, prompt, uncached)
  return uncached * (1 + (prompt - (uncached - 1) / 2) / r.doubling)
end

-- Finds what the adapter that the prompt needs costs at each replica. Its load delays no other
-- request there, because it happens beside the steps.
local function weigh_adapters(ask)
  delays = ask.adapter ~= '' and {} or nil
  if not delays then
    return
  end
  if not slots then
    of_adapters = adapter_ops()
    slots, usual = of_adapters.read_slots(ready, adapters)
  end
  local places = of_adapters.read_fields(ready, ask.adapter, adapters)
  for i, r in ipairs(ready) do
    local load_s, wait_s, evict_s = of_adapters.delays(slots[r], usual, places[i])
    delays[r] = load_s + wait_s + evict_s
  end
end

-- The delay in seconds that placing the prompt on `r`, which holds `chunks` of it, causes to all
-- requests; README.md explains each term. Returns the cost and its parts.
local function cost_of(r, ask, chunks, delay)
  local matched = floor(chunks * $CHUNK_BYTES / r.bytes_per_token)
  -- The last prompt token is always computed, because its logits give the first output token.
  local uncached = ask.prompt - min(ask.prompt - 1, matched)
  local work, short = work_of(r, ask.prompt, uncached), r.over + uncached + ask.output
  local who = 1 + r.load.waiting + coming_to(r)
  local cost, kv_wait, evict = r.wait + work * (who / r.prefill + pool_token) + delay, 0, 0
  if short > -r.cached then
    -- Without what the waiting leases there evict anyway. Where it will be computed again is unknown.
    local evicted = min(short, 0) - min(max(r.over, -r.cached), 0)
    kv_wait, evict = max(0, short) / r.release, evicted * r.leaf * usual_who
    cost = cost + kv_wait + evict
  end
  return cost, uncached, work, kv_wait, evict
end

local function is_better(r, cost, best)
  return cost < best.cost or (cost == best.cost and r.load.requests < best.replica.load.requests)
end

-- The fewest chunks with which `r` beats `best`, or `enough` if it needs at least that many. Binary
-- search, because cost_of never rises with the chunks held.
local function chunks_to_beat(r, ask, best, enough, delay)
  if not is_better(r, cost_of(r, ask, enough - 1, delay), best) then
    return enough
  end
  local worse, better = -1, enough - 1
  while better - worse > 1 do
    local middle = floor((worse + better) / 2)
    if is_better(r, cost_of(r, ask, middle, delay), best) then
      better = middle
    else
      worse = middle
    end
  end
  return better
end

-- Chunks of the path that `r` holds; nil if it does not hold the first `least`, which one look-up
-- shows. `guess`, what another replica holds, may be nil.
local function chunks_held(r, path, least, guess)
  if least == 0 then
    return search(r.tree, path, EVER, guess)
  elseif least > #path / $KEY_BYTES then
    return nil
  end
  local known = least
  if least == guess then
    known = least - 1 -- the search looks there first
  elseif not redis.call('ZSCORE', r.tree, chunk_key(path, least)) then
    return nil
  end
  local chunks = search(r.tree, path, EVER, least <= guess and guess or nil, known)
  return chunks >= least and chunks or nil
end

-- Whether `r` has reached its limit of requests: the ask's, or its own.
local function has_most(r, ask)
  local requests = r.load.requests
  return (ask.most > 0 and requests >= ask.most) or (r.most > 0 and requests >= r.most)
end

-- About 0.618 of `count`, adjusted to have no common divisor with it, so that steps of this size visit
-- all replicas. Replicas that hold more and more of a prompt in their order are then visited mixed.
local function stride_of(count)
  local function has_divisor(a, b)
    while b > 0 do
      a, b = b, a % b
    end
    return a > 1
  end
  local stride = max(1, floor(0.618 * count))
  while has_divisor(stride, count) do
    stride = stride + 1
  end
  return stride
end

local stride = stride_of(#ready)
weigh_all()

-- The best replica that may be chosen, or nil; the one that holds the most; every candidate if `all`;
-- and whether some were full. A replica that holds too little to beat the best so far, and no more
-- than the one that holds the most, is not examined closely. The start differs by request, so that
-- equal replicas share the load.
local function choose(ask, all)
  local best, most, found, full, is_full = nil, nil, {}, {}, false
  weigh_adapters(ask)

  local function look(r, least, is_candidate_full)
    local chunks = chunks_held(r, ask.path, least, most and most.chunks)
    if chunks then
      local candidate = { replica = r, chunks = chunks, full = is_candidate_full, cost = 0 }
      if all then
        found[#found + 1] = candidate
      end
      if not most or chunks > most.chunks then
        most = candidate
      end
      return candidate
    end
  end

  for i = 1, #ready do
    local r = ready[(ask.tie + i * stride) % #ready + 1]
    local delay = delays and delays[r] or 0
    local allowed = ask.only == '' or ask.only == r.name
    if not ask.excluded[r.name] and (allowed or ask.every) then
      if has_most(r, ask) then
        full[#full + 1], is_full = r, is_full or allowed
      else
        local least = 0
        if best and not all then
          least = chunks_to_beat(r, ask, best, most.chunks + 1, delay)
        end
        local candidate = look(r, least, false)
        if candidate and allowed then
          candidate.cost = cost_of(r, ask, candidate.chunks, delay)
          if not best or is_better(r, candidate.cost, best) then
            best = candidate
          end
        end
      end
    end
  end
  if best or explain then -- a waiting prompt asks repeatedly, and nobody reads its terms
    for _, r in ipairs(full) do
      look(r, all and 0 or most.chunks + 1, true)
    end
  end
  return best, most, found, is_full
end

-- The candidate's terms; where `most` is given, with who holds the most, as the answer of a placement,
-- and then also the work and the room that its lease reserves.
local function packed(ask, candidate, most)
  local r, adapter_load_s, adapter_wait_s, adapter_evict_s = candidate.replica, 0, 0, 0
  if delays then
    local place = redis.call('HGET', adapters, place_field(r.name, ask.adapter))
    adapter_load_s, adapter_wait_s, adapter_evict_s =
      of_adapters.delays(slots[r], usual, place)
  end
  local cost_s, uncached, work, kv_wait_s, evict_s =
    cost_of(r, ask, candidate.chunks, adapter_load_s + adapter_wait_s + adapter_evict_s)
  local matched_chunks, matched_tokens = candidate.chunks, ask.prompt - uncached
  local backlog_tokens, outstanding, queue = backlog_of(r), r.load.requests, r.load.waiting
  local capacity_tokens, pinned_tokens = r.capacity, r.pinned
  local capacity_chunks = $UNKNOWN_CAPACITY_CHUNKS
  if capacity_tokens > 0 then
    capacity_chunks = floor(capacity_tokens * r.bytes_per_token / $CHUNK_BYTES)
  end
  local wait_s, work_s, coming, pool_s = r.wait, work / r.prefill, coming_to(r), work * pool_token
  local full, replica, url, incarnation = candidate.full, r.name, r.url, r.incarnation
  if not most then
    return $pack(CANDIDATE)
  end
  local room = uncached + ask.output
  local most_chunks, holder_full, holder = most.chunks, most.full, most.replica.name
  return $pack(PLACED), work, room
end

local function all_packed(ask, found)
  local all = {}
  for number, candidate in ipairs(found) do
    all[number] = packed(ask, candidate)
  end
  return all
end

-- Reads the prompt whose fields begin at ARGV[i]; also returns where the next one begins.
local function read_ask(i)
  local $names(Prompt) = $arguments(Prompt, i)
  local names, first = {}, i + $length(Prompt)
  for name = first, first + excluded - 1 do
    names[ARGV[name]] = true
  end
  return {
    path = path, prompt = prompt_tokens, output = output_tokens, lease = lease,
    lease_ms = lease_ms, tie = tie, most = max_outstanding, every = every, only = only,
    excluded = names, adapter = adapter,
    bounds_sessions = bounds_sessions, may_wait = may_wait, session = session,
  }, first + excluded
end

local answers, i = {}, $length(Place) + 1
local hold_back = nil -- once a prompt's session is bound
while i <= #ARGV do
  local ask
  ask, i = read_ask(i)
  local best, most, found, full = choose(ask, explain or ask.every)
  local held
  if best and ask.bounds_sessions and mode ~= $Mode.EXPLAIN then
    hold_back = hold_back or session_ops()
    held = hold_back(sessions, leases, ask, most, ready, now, explain)
  end
  if mode == $Mode.EXPLAIN then
    answers = all_packed(ask, found)
  elseif mode == $Mode.CROWD then
    answers = { held }
  elseif held then
    answers[#answers + 1] = { $HELD_BACK, held }
  elseif best then
    local answer, work, room = packed(ask, best, most)
    if ask.every then
      answer = { answer, unpack(all_packed(ask, found)) }
    end
    answers[#answers + 1] = answer
    if delays then
      of_adapters.expect_load(best.replica.name, slots[best.replica], ask.adapter, adapters)
    end
    local owner = owner_of(best.replica.incarnation, best.replica.name)
    if add_lease(book, ask.lease, owner, work, room, now, ask.lease_ms) then
      weigh_all()
    else
      weigh(best.replica)
      weigh_pool()
    end
  else
    answers[#answers + 1] = full and $FULL or false
  end
end
close_book(book)
return answers
