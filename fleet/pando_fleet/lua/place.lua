-- Decides which replica serves a prompt and, unless only asked to explain, reserves it.
--
-- KEYS replicas, terms, leases, parts, loads
-- ARGV now or '', place|explain, freshness ms, tree key prefix, path, chunk bytes, prompt tokens,
--      output tokens, lease, lease ms, tie, the only replica allowed or '', excluded replicas...
--
-- Returns the chosen candidate as JSON (or nil), or with explain the JSON of each candidate. A
-- tree's key is made here, because which replicas live is read here; it carries the pool's hash tag
-- as every key in KEYS does, so in a cluster it lies in the slot that the script was sent to.

-- Until anyone in the pool has measured: about what one CPU worker does. The absolute size cancels
-- out of the comparison then, only the ratio counts: a KV token is released tenfold slower than
-- prefilled.
local PRIOR_PREFILL = 1000 -- tokens/s
local PRIOR_RELEASE = 100 -- tokens/s
local UNKNOWN_CAPACITY = 65536 -- chunks kept for a replica that does not say what it can hold

local now = now_ms(ARGV[1])
local explain = ARGV[2] == 'explain'
local fresh_ms, tree_prefix, path = tonumber(ARGV[3]), ARGV[4], ARGV[5]
local chunk_bytes, prompt, output = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local lease, lease_ms, tie, only = ARGV[9], tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12]
local keys = lease_keys(3)
local excluded = {}
for i = 13, #ARGV do
  excluded[ARGV[i]] = true
end

end_expired_leases(keys, now)

local loads = {}
local rows = redis.call('HGETALL', keys.loads)
for i = 1, #rows, 2 do
  loads[rows[i]] = rows[i + 1]
end

-- Pass 1: the ready replicas, the rates they measured, and who waits.
local names = redis.call('ZRANGEBYSCORE', KEYS[1], now - fresh_ms, '+inf')
if #names == 0 then
  return explain and {} or false
end
local ready = {}
local prefill_sum, prefill_count, release_sum, release_count, waiting_sum = 0, 0, 0, 0, 0
for i, row in ipairs(redis.call('HMGET', KEYS[2], unpack(names))) do
  if row then -- no terms: it starts or drains
    local capacity, pinned, prefill, decode, release, bytes_per_token, incarnation, url =
      struct.unpack('>ddddddss', row)
    local owner = incarnation .. ':' .. names[i]
    local backlog, expected, waiting, requests = 0, 0, 0, 0
    if loads[owner] then
      backlog, expected, waiting, requests = struct.unpack('>dddd', loads[owner])
    end
    -- In a steady state what ends is what was decoded, and the prompts come on top: a lower bound.
    release = release > 0 and release or decode
    if prefill > 0 then
      prefill_sum, prefill_count = prefill_sum + prefill, prefill_count + 1
    end
    if release > 0 then
      release_sum, release_count = release_sum + release, release_count + 1
    end
    waiting_sum = waiting_sum + waiting
    ready[#ready + 1] = {
      name = names[i], url = url, incarnation = incarnation, owner = owner,
      capacity = capacity, pinned = pinned, prefill = prefill, release = release,
      bytes_per_token = bytes_per_token,
      backlog = backlog, expected = expected, requests = requests,
    }
  end
end
local queue = waiting_sum / #ready
local usual_prefill = prefill_count > 0 and prefill_sum / prefill_count or PRIOR_PREFILL
local usual_release = release_count > 0 and release_sum / release_count or PRIOR_RELEASE

-- Pass 2: each one's cost, from a start that differs by request, so that equals share.
local best
local explained = {}
local guess = 0
local probes = { [0] = first_probes(path, 0) } -- by guess: a path ends at few different depths
for i = 1, #ready do
  local r = ready[(tie + i) % #ready + 1]
  if not excluded[r.name] and (only == '' or only == r.name) then
    local prefill = r.prefill > 0 and r.prefill or usual_prefill
    local release = r.release > 0 and r.release or usual_release
    local chunks = match(tree_prefix .. r.owner, path, probes[guess])
    guess = chunks
    probes[guess] = probes[guess] or first_probes(path, guess)
    -- The last prompt token is always computed: its logits are the first answer.
    local matched = math.min(prompt - 1, math.floor(chunks * chunk_bytes / r.bytes_per_token))
    local uncached = prompt - matched
    local wait, work, kv_wait = r.backlog / prefill, uncached / prefill, 0
    if r.capacity > 0 then
      -- Leases that wait for their first token are not in the heartbeat's pinned tokens yet.
      local unseen = r.backlog + r.expected
      local short = r.pinned + unseen + uncached + output - r.capacity
      kv_wait = math.max(0, short) / release
    end
    local cost = wait + kv_wait + work * (1 + queue)
    local better = not best or cost < best.cost
      or (cost == best.cost and r.requests < best.replica.requests)
    if better or explain then
      local terms = {
        replica = r, chunks = chunks, matched = matched, uncached = uncached,
        wait = wait, kv_wait = kv_wait, work = work, cost = cost,
      }
      best = better and terms or best
      explained[#explained + 1] = terms
    end
  end
end

local function candidate(terms)
  local r = terms.replica
  return cjson.encode({
    replica = r.name, url = r.url, incarnation = r.incarnation,
    matched_chunks = terms.chunks, matched_tokens = terms.matched,
    backlog_tokens = r.backlog, outstanding = r.requests,
    wait_s = terms.wait, kv_wait_s = terms.kv_wait, work_s = terms.work,
    queue = queue, cost_s = terms.cost,
  })
end

if explain then
  for i, terms in ipairs(explained) do
    explained[i] = candidate(terms)
  end
  return explained
end
if not best then
  return false
end
local r = best.replica
add_lease(keys, lease, r.owner, best.uncached, output, now, lease_ms)
local capacity = UNKNOWN_CAPACITY
if r.capacity > 0 then
  capacity = math.floor(r.capacity * r.bytes_per_token / chunk_bytes)
end
touch(tree_prefix .. r.owner, path, capacity, now)
return candidate(best)
