-- Counts the working set of a pool, for session_ops.lua: the KV tokens that must stay cached so that none
-- of its sessions computes its conversation again.
--
-- A session holds what it added to what others held when it began. It runs while its last call has a
-- lease. While it pauses, it counts by the probability that it returns before the pool could have
-- computed its prefix again from idle: a session that paused for t returns within the next u with
-- probability u / (t + u), on any time scale (as `weigh_leaves` says of leaves); u, its stay, is the
-- time in which the pool computes all the tokens that it holds, by the prefill rates of its replicas. A
-- pause shorter than u costs the pool less memory than the computation would cost it time.
--
-- Not everything returns: single questions never do. So the pool counts, apart for first calls and for
-- later ones, how often sessions returned, and for how many stays they paused: until their next call came,
-- also where that one waits for room then. With fewer returns than stays, memory for them costs the pool
-- more than computation, so they weigh by that ratio; and the working set counts against calls by the
-- ratio of all. Where less than one in RARE of the tokens that stay is read again, nothing waits, and only
-- a sample of the sessions is noted (session_rows.lua).

local COUNT_MS = 250 -- between two counts of the working set
local ROW_MS = 1 -- between them for each session, so that counts take a hundredth of the time
local FORGET_MS = 3600000 -- of a pause
local AT_ONCE = 1000 -- fields per call
local ASSUMED = 8 -- returns, before any is known
local RECENT = 1000 -- returns and stays; beyond that, earlier ones count half
local RECENT_FILLS = 32 -- tokens read again and not, in those that the pool holds; the same
local NAME_LENGTH = 16 -- of a name's digest; landmarks are shorter
local RARE = 32 -- less than one in so many tokens that stay is read again
local ASSUMED_FILLS = 4 -- that stay, before this is known, in tokens that the pool holds

$reader(WORKING_SET)

-- The working set in its row, and nothing without one that is whole.
local function set_in(row)
  local is_whole, $names(WORKING_SET) = pcall(unpack_working_set, row or '')
  if is_whole then
    return {
      counted = counted, held = held, sessions = sessions, active = active,
      first_returns = first_returns, first_stays = first_stays,
      later_returns = later_returns, later_stays = later_stays, busy = busy,
      tokens_read = tokens_read, tokens_stayed = tokens_stayed, waited = waited,
    }
  end
  return {
    counted = 0, held = 0, sessions = 0, active = 0, first_returns = 0, first_stays = 0,
    later_returns = 0, later_stays = 0, busy = 1, tokens_read = 0, tokens_stayed = 0, waited = 0,
  }
end

-- The pool's KV tokens; the seconds in which it computes as many, at the start of prompts; and the
-- context that doubles a token's time.
local function memory_of(ready)
  local capacity, rate, doubling = 0, 0, 0
  for _, r in ipairs(ready) do
    capacity, rate, doubling = capacity + r.capacity, rate + r.prefill, doubling + r.doubling
  end
  return { capacity = capacity, seconds = capacity / rate, doubling = doubling / #ready }
end

-- How long, in ms, a pause of a session with a prompt of so many tokens may be so that its memory costs
-- the pool less than its computation would: the time in which the pool computes all that it holds, in
-- prompts like this one.
local function stay_after(tokens, memory)
  return 1000 * memory.seconds * (1 + tokens / 2 / memory.doubling)
end

local function stay_of(session, memory)
  return stay_after(session.base + session.held, memory)
end

local function is_in_stay(session, memory, now)
  return session.paused == 0 or now - session.paused <= stay_of(session, memory)
end

local function kind_of(session)
  return session.calls > 1 and 'later' or 'first'
end

-- How often sessions return in a stay, at most 1.
local function likely(returns, stays)
  return math.min(1, (ASSUMED + returns) / math.max(1, stays))
end

local function likely_after(set, kind)
  return likely(set[kind .. '_returns'], set[kind .. '_stays'])
end

local function likely_in(set)
  return likely(set.first_returns + set.later_returns, set.first_stays + set.later_stays)
end

-- Whether hardly anything returns: of the tokens that stayed for the time that their memory is worth, and
-- they were many, less than one in RARE was read again.
local function are_rare(set, memory)
  return RARE * set.tokens_read + ASSUMED_FILLS * memory.capacity < set.tokens_stayed
end

-- The tokens of a session, weighed by the probability that it returns within its stay. A whole number,
-- so that the working set is the same in whatever order Redis lists the sessions.
local function weighed(held, returns, stay, paused, now)
  held = held * returns
  if paused > 0 then
    held = held * stay / (stay + now - paused)
  end
  return math.floor(held)
end

local function share_of(session, memory, set, now)
  local returns = likely_after(set, kind_of(session))
  return weighed(session.held, returns, stay_of(session, memory), session.paused, now)
end

local function add(set, name, count, other)
  set[name] = set[name] + count
  if set[name] + set[other] > RECENT then
    set[name], set[other] = set[name] / 2, set[other] / 2
  end
end

local function add_tokens(set, name, tokens, memory)
  set[name] = set[name] + tokens
  if set.tokens_read + set.tokens_stayed > RECENT_FILLS * memory.capacity then
    set.tokens_read, set.tokens_stayed = set.tokens_read / 2, set.tokens_stayed / 2
  end
end

-- Notes the end of its pause, whether its call is placed now or waits; a conversation that is rewritten
-- is not read again.
local function note_return(set, session, memory, is_rewritten)
  local kind = kind_of(session)
  add(set, kind .. '_returns', 1, kind .. '_stays')
  if not is_rewritten then
    add_tokens(set, 'tokens_read', session.base + session.held, memory)
  end
end

-- Which part of its stay a session has paused since the last count, at `before`.
local function pause_of(stay, paused, before, now)
  local known = math.max(0, math.min(stay, before - paused))
  local passed = math.max(known, math.min(stay, now - paused))
  return (passed - known) / stay
end

local function note_pauses(set, stays, tokens, memory)
  add(set, 'first_stays', stays.first, 'first_returns')
  add(set, 'later_stays', stays.later, 'later_returns')
  add_tokens(set, 'tokens_stayed', tokens, memory)
end

-- Notes that what a rewritten conversation held is not read again in the rest of its stay.
local function note_rewritten(set, session, memory, now)
  local stay = stay_of(session, memory)
  local passed = session.paused > 0 and math.min(stay, now - session.paused) or 0
  add_tokens(set, 'tokens_stayed', (1 - passed / stay) * session.held, memory)
end

local function in_parts(command, key, values)
  for first = 1, #values, AT_ONCE do
    redis.call(command, key, unpack(values, first, math.min(first + AT_ONCE - 1, #values)))
  end
end

-- Counts the working set, notes which sessions pause, and for how long, and forgets those that did so
-- for long, and their names; with many sessions, for longer than their memory is worth; and while
-- returns are rare, those that are not in the sample. Rows do not become tables here, and what is equal
-- for all is found once: it is most of the time that sessions cost Redis.
local function count_sessions(sessions, leases, memory, set, is_rare, before, now)
  local rows, gone, changed, names, used = redis.call('HGETALL', sessions), {}, {}, {}, {}
  local are_many = 2 * set.sessions > $MOST_SESSIONS
  local first_returns, later_returns = likely_after(set, 'first'), likely_after(set, 'later')
  local counted, held_by_all, active = 0, 0, 0
  local stays, tokens_stayed = { first = 0, later = 0 }, 0
  for i = 1, #rows, 2 do
    local field = rows[i]
    local is_name, is_session = #field == NAME_LENGTH, false
    local $names(SESSION)
    if field ~= '' and not is_name then
      is_session, $names(SESSION) = pcall(unpack_session, rows[i + 1])
    end
    local is_noted = is_session and (not is_rare or is_sampled(string.byte(field, -1)))
    if is_session then
      if paused == 0 and not redis.call('ZSCORE', leases, lease) then
        paused = math.max(since, before) -- at the earliest
        changed[#changed + 1], changed[#changed + 2] = field, $pack(SESSION)
      end
      local stay, pause = stay_after(base + held, memory), paused > 0 and now - paused or 0
      if paused > 0 and waits == 0 and before - paused < stay then
        local part, kind = pause_of(stay, paused, before, now), calls > 1 and 'later' or 'first'
        stays[kind] = stays[kind] + part
        tokens_stayed = tokens_stayed + part * (base + held)
      end
      is_noted = is_noted and pause <= (are_many and stay or FORGET_MS)
      if is_noted then
        local returns = calls > 1 and later_returns or first_returns
        held_by_all = held_by_all + weighed(held, returns, stay, paused, now)
        counted = counted + 1
        active = active + (held > 0 and pause <= stay and 1 or 0)
        used[name] = true
      end
    end
    if is_name then
      names[#names + 1] = field
    elseif field ~= '' and not is_noted then
      gone[#gone + 1] = field
    end
  end
  set.held, set.sessions, set.active = held_by_all, counted, active
  note_pauses(set, stays, tokens_stayed, memory)
  for _, name in ipairs(names) do
    if not used[name] then
      gone[#gone + 1] = name
    end
  end
  in_parts('HSET', sessions, changed)
  in_parts('HDEL', sessions, gone)
end

-- Notes how many of the replicas are busy, as a mean over about the time in which the pool computes as
-- many tokens as it holds.
local function note_busy(set, ready, memory, passed_ms)
  local busy = 0
  for _, r in ipairs(ready) do
    busy = busy + (r.load.waiting > 0 and 1 / #ready or 0)
  end
  set.busy = busy + (set.busy - busy) * math.exp(-passed_ms / 1000 / memory.seconds)
end

-- Counts the working set anew, unless that was done a moment ago. A count is noted whatever becomes of
-- the call, so that no flood of calls makes each of them count.
local function keep_counted(sessions, leases, ready, memory, set, is_rare, now)
  local before = set.counted
  if before <= now and now - before < math.max(COUNT_MS, ROW_MS * set.sessions) then
    return
  end
  if before > 0 then
    note_busy(set, ready, memory, now - before)
  end
  set.counted = now
  count_sessions(sessions, leases, memory, set, is_rare, before, now)
  redis.call('HSET', sessions, '', $pack(WORKING_SET, set))
  redis.call('PEXPIRE', sessions, FORGET_MS)
end
