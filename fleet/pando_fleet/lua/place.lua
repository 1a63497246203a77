-- Decides which replica serves each of some prompts and, unless only asked to explain, reserves it.
-- Prompts that came in one turn of a router's loop are asked together: the fleet is read once, and
-- each decision sees the leases of those before it.
--
-- KEYS replicas, terms, leases, parts, loads
-- ARGV now or '', place|explain, freshness ms, tree key prefix, chunk bytes, then for each prompt:
--      path, prompt tokens, output tokens, lease, lease ms, tie, most requests at one replica or 0,
--      1 to return every candidate or 0, the only replica allowed or '', number of excluded
--      replicas, these...
--
-- Returns for each prompt the chosen candidate, packed (see `packed`), or a list of it and every
-- candidate; false where there is none; 'full' where all that are allowed have the most requests.
-- To explain, one prompt is asked, and each of its candidates is returned. Full replicas are among
-- the candidates, marked: they are never chosen, but may hold the most. A tree's key is made here,
-- because which replicas live is read here; it carries the pool's hash tag as every key in KEYS
-- does, so in a cluster it lies in the slot that the script was sent to.

local UNKNOWN_CAPACITY = 65536 -- chunks kept for a replica that does not say what it can hold

local now, explain = now_ms(ARGV[1]), ARGV[2] == 'explain'
local tree_prefix, chunk_bytes = ARGV[4], tonumber(ARGV[5])
local book = open_book(3)
end_expired_leases(book, now)
local ready = read_fleet(book, KEYS[1], KEYS[2], now - tonumber(ARGV[3]))

-- What placing the prompt on `r` costs everybody, in seconds; README.md explains each term.
local function estimate(r, ask, guess)
  local load = r.load
  local chunks = search(tree_prefix .. r.owner, ask.path, EVER, guess)
  -- The last prompt token is always computed: its logits are the first answer.
  local matched = math.min(ask.prompt - 1, math.floor(chunks * chunk_bytes / r.bytes_per_token))
  local uncached = ask.prompt - matched
  local wait, work, kv_wait = load.prefill / r.prefill, uncached / r.prefill, 0
  if r.capacity > 0 then
    -- Leases that wait for their first token are not in the heartbeat's pinned tokens yet.
    local unseen = load.prefill + load.output
    local short = r.pinned + unseen + uncached + ask.output - r.capacity
    kv_wait = math.max(0, short) / r.release
  end
  return {
    replica = r, chunks = chunks, matched = matched, uncached = uncached,
    wait = wait, kv_wait = kv_wait, work = work,
    cost = wait + kv_wait + work * (1 + load.waiting),
  }
end

-- Whether `r` has all the requests that it may have: by the ask, and by its own word.
local function has_most(r, ask)
  local requests = r.load.requests
  return (ask.most > 0 and requests >= ask.most) or (r.most > 0 and requests >= r.most)
end

local function better(a, b)
  return a.cost < b.cost
    or (a.cost == b.cost and a.replica.load.requests < b.replica.load.requests)
end

-- The terms of those that may be chosen, then of those that are full; the best of them, nil where
-- none may be chosen; and whether some were full. Starts at a replica that differs by request, so
-- that equals share.
local function candidates_of(ask)
  local found, best, full, is_full, guess = {}, nil, {}, false, nil
  for i = 1, #ready do
    local r = ready[(ask.tie + i) % #ready + 1]
    local allowed = ask.only == '' or ask.only == r.name
    if not ask.excluded[r.name] and (allowed or ask.every) then
      if has_most(r, ask) then
        full[#full + 1], is_full = r, is_full or allowed
      else
        local terms = estimate(r, ask, guess)
        guess = terms.chunks
        found[#found + 1] = terms
        if allowed and (not best or better(terms, best)) then
          best = terms
        end
      end
    end
  end
  if best or explain then -- a prompt that waits asks again and again: nobody reads its terms
    for _, r in ipairs(full) do
      local terms = estimate(r, ask, guess)
      guess, terms.full = terms.chunks, true
      found[#found + 1] = terms
    end
  end
  return found, best, is_full
end

local function capacity_chunks(r)
  if r.capacity == 0 then
    return UNKNOWN_CAPACITY
  end
  return math.floor(r.capacity * r.bytes_per_token / chunk_bytes)
end

-- Its terms, and those of `most`, the candidate that holds the most of the prompt.
local function packed(terms, most)
  local r = terms.replica
  return struct.pack('>dddddddddddddddssss',
    terms.chunks, terms.matched, r.load.prefill, r.load.requests, capacity_chunks(r),
    r.capacity, r.pinned, terms.wait, terms.kv_wait, terms.work, r.load.waiting, terms.cost,
    terms.full and 1 or 0, most.chunks, most.full and 1 or 0,
    r.name, r.url, r.incarnation, most.replica.name)
end

local function all_packed(found, most)
  local all = {}
  for number, terms in ipairs(found) do
    all[number] = packed(terms, most)
  end
  return all
end

local function most_held(found)
  local most = found[1]
  for _, terms in ipairs(found) do
    if terms.chunks > most.chunks then
      most = terms
    end
  end
  return most
end

-- The prompt whose fields begin at ARGV[i], and where the next one's begin.
local function read_ask(i)
  local ask = {
    path = ARGV[i], prompt = tonumber(ARGV[i + 1]), output = tonumber(ARGV[i + 2]),
    lease = ARGV[i + 3], lease_ms = tonumber(ARGV[i + 4]), tie = tonumber(ARGV[i + 5]),
    most = tonumber(ARGV[i + 6]), every = ARGV[i + 7] == '1', only = ARGV[i + 8], excluded = {},
  }
  local excluded = tonumber(ARGV[i + 9])
  for name = i + 10, i + 9 + excluded do
    ask.excluded[ARGV[name]] = true
  end
  return ask, i + 10 + excluded
end

local answers, longest_ms, i = {}, 0, 6
while i <= #ARGV do
  local ask
  ask, i = read_ask(i)
  local found, best, full = candidates_of(ask)
  if explain then
    answers = all_packed(found, most_held(found))
  elseif best then
    local most = most_held(found)
    local answer = packed(best, most)
    if ask.every then
      answer = { answer, unpack(all_packed(found, most)) }
    end
    answers[#answers + 1] = answer
    add_lease(book, ask.lease, best.replica.owner, best.uncached, ask.output, now, ask.lease_ms)
    longest_ms = math.max(longest_ms, ask.lease_ms)
  else
    answers[#answers + 1] = full and 'full' or false
  end
end
close_book(book)
if longest_ms > 0 then
  keep_book(book, longest_ms)
end
return answers
