-- session_ops() returns `hold_back`, for the calls that bound sessions.
--
-- The sessions of one pool, and their working set: the KV tokens that must stay cached so that none of
-- them computes its conversation again. `sessions` (a hash) has a row for each, by the key of a landmark
-- on its last prompt's path: every $LANDMARK_CHUNKS-th chunk is one. A call that extends that prompt has
-- this landmark on its own path, so sessions need no names. A first call's is its last landmark, because
-- it may share those before with others; a later call's is the one before, because agents change the end
-- of a prompt when they extend it. The field '' has the working set as of its last count.
--
-- A call may have a name, too. By the name's digest, `sessions` has the field of the session that used it
-- last. A call that extends no session continues that one, if its last call has ended: its agent has
-- shortened or rewritten the conversation. The old row then holds nothing, but stays, because a name may
-- be that of an application or a person with several conversations: as soon as a second one goes on
-- under a name, the name stands for SHARED, and says nothing any more. So no name hides the tokens of a
-- conversation that goes on.
--
-- A session holds what it added to what others held when it began. It runs while its last call has a
-- lease. While it pauses, it counts by the probability that it returns before the pool could have
-- computed its prefix again from idle: a session that paused for t returns within the next u with
-- probability u / (t + u), on any time scale (as `weigh_leaves` says of leaves); u, its stay, is the
-- time in which the pool computes all the tokens that it holds, by the prefill rates of its replicas. A
-- pause shorter than u costs the pool less memory than the computation would cost it time.
--
-- A session goes on while a replica still has most of its conversation. One whose conversation was
-- evicted takes as much from others as a new one does, however short its pause was, so it waits for room
-- like that. Else sessions that grow beyond the memory would evict each other until they end. A call that
-- makes the working set no larger, as when an agent shortens its conversation, never waits.
--
-- Not everything returns: single questions never do. So the pool counts, apart for first calls and for
-- later ones, how often sessions returned, and for how many stays they paused: until their next call came,
-- also where that one waits for room then. With fewer returns than stays, memory for them costs the pool
-- more than computation, so they weigh by that ratio; and the working set counts against calls by the
-- ratio of all. Where less than one in RARE of the tokens that stay is read again, nothing waits, and only
-- a sample of the sessions is noted, to learn when that changes: those that add one of the landmarks, one
-- in SAMPLED, whose keys end in a certain byte. So most short prompts only read the field '', and most
-- long ones are noted.
--
-- Where replicas have time to spare, a conversation that was evicted can be computed again and delay
-- nobody. The pool notes the share of its replicas with requests that wait for a first token; in the
-- rest of the time it could compute as large a share of its memory again, so the working set may be
-- larger than the memory by that. New sessions get half of it, so that those that return find room, and
-- seldom wait: all long waits of calls were theirs. While one that returns waits, new ones wait, too, or
-- small new ones would take the room that a large one needs, as it becomes free, again and again.

local COUNT_MS = 250 -- between two counts of the working set
local ROW_MS = 1 -- between them for each session, so that counts take a hundredth of the time
local FIRST_LOOK = 5 -- landmarks; a call rarely adds more to its session's last prompt
local FORGET_MS = 3600000 -- of a pause
local AT_ONCE = 1000 -- fields per call
local ASSUMED = 8 -- returns, before any is known
local RECENT = 1000 -- returns and stays; beyond that, earlier ones count half
local RECENT_FILLS = 32 -- tokens read again and not, in those that the pool holds; the same
local LANDMARK_BYTES = $KEY_BYTES * $LANDMARK_CHUNKS -- of a path, up to a landmark and from the last
local NAME_LENGTH = 16 -- of a name's digest; landmarks are shorter
local RARE = 32 -- less than one in so many tokens that stay is read again
local ASSUMED_FILLS = 4 -- that stay, before this is known, in tokens that the pool holds
local TURN_MS = 1000 -- routers ask more often for the call that waits first
local SAMPLED = 64 -- one in so many landmarks has rows while returns are rare
local SHARED = '' -- instead of a session's field: the name is that of several

$reader(SESSION)
$reader(WORKING_SET)

-- A session's row as a table; nil for a broken one, or one of another release.
local function session_in(row)
  local is_whole, $names(SESSION) = pcall(unpack_session, row)
  if is_whole then
    return {
      base = base, held = held, since = since, paused = paused, calls = calls, lease = lease,
      waits = waits, name = name,
    }
  end
end

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

local function landmarks_of(path)
  return math.floor(#path / LANDMARK_BYTES)
end

local function field_of(path, landmark)
  return chunk_key(path, landmark * $LANDMARK_CHUNKS)
end

-- The session whose row is under one of the path's landmarks, the first one that has any, with the field
-- of its row and the chunks up to there; or nil.
local function session_under(sessions, path, landmarks)
  local fields = {}
  for i = 1, #landmarks do
    fields[i] = field_of(path, landmarks[i])
  end
  local rows = #fields > 0 and redis.call('HMGET', sessions, unpack(fields)) or {}
  for i = 1, #rows do
    local session = rows[i] and session_in(rows[i])
    if session then
      session.field, session.chunks = fields[i], landmarks[i] * $LANDMARK_CHUNKS
      return session
    end
  end
end

-- The session that the path extends, or nil, and the field of its row from now on. Looks at the path's
-- last landmarks first, and then at all others: most calls that continue a session need the first look
-- only.
local function find_session(sessions, path)
  local last, session = landmarks_of(path), nil
  local from, to = last, math.max(1, last - FIRST_LOOK + 1)
  while from > 0 and not session do
    local landmarks = {}
    for landmark = from, to, -1 do
      landmarks[#landmarks + 1] = landmark
    end
    session = session_under(sessions, path, landmarks)
    from, to = to - 1, 1
  end
  return session, field_of(path, session and math.max(1, last - 1) or last) -- calls change the end
end

local function is_sampled(last_byte)
  return last_byte % SAMPLED == 0
end

-- The same while returns are rare; no field if the sample has nothing of what the path adds to the first
-- `held` chunks, which a replica has.
local function find_sampled(sessions, path, held)
  local landmarks, byte = {}, string.byte
  for landmark = landmarks_of(path), 1, -1 do
    if is_sampled(byte(path, LANDMARK_BYTES * landmark)) then
      landmarks[#landmarks + 1] = landmark
    end
  end
  local session = session_under(sessions, path, landmarks)
  local newest = landmarks[1]
  if newest and (session or newest * $LANDMARK_CHUNKS > held) then
    return session, field_of(path, newest)
  end
end

-- The session that stands by a name, unless a call of it runs: that one has another conversation.
local function session_named(sessions, leases, named)
  local row = named and named ~= SHARED and redis.call('HGET', sessions, named)
  local session = row and session_in(row)
  if session and not redis.call('ZSCORE', leases, session.lease) then
    return session
  end
end

-- What is to stand by the name of a call whose session, if it extends one, was at `field`.
local function name_stands_for(sessions, named, field, new_field)
  if named == SHARED then
    return SHARED
  end
  local is_other = named and field and named ~= field
  return is_other and redis.call('HGET', sessions, named) and SHARED or new_field
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

local function tokens_of(chunks, replica)
  return math.floor(chunks * $CHUNK_BYTES / replica.bytes_per_token)
end

-- Whether the replica that holds most of the session's prompt has half of what the session added to it.
local function is_kept(session, most)
  local replica, base = most.replica, session.base
  return session.chunks
    and 2 * (tokens_of(most.chunks, replica) - base) >= tokens_of(session.chunks, replica) - base
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

-- How large the working set may become by this call.
local function room_of(memory, set, is_back)
  local spare = 1 - set.busy
  return memory.capacity * (1 + (is_back and spare or spare / 2))
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

-- Notes a call that is placed: the session that it continues (or nil, or one that it has rewritten), the
-- field of its row from now on, and what stands by its name.
local function note_call(sessions, ask, set, session, rewritten, base, held, new_field, named, now)
  local field = session and session.field
  local row = {
    base = base, held = held, since = now, paused = 0, calls = session and 2 or 1,
    lease = ask.lease, waits = 0, name = ask.session,
  }
  local changed = { new_field, $pack(SESSION, row), '', $pack(WORKING_SET, set) }
  if ask.session ~= '' then
    changed[5], changed[6] = ask.session, name_stands_for(sessions, named, field, new_field)
  end
  if rewritten then
    rewritten.held, rewritten.paused = 0, rewritten.paused > 0 and rewritten.paused or now
    changed[7], changed[8] = named, $pack(SESSION, rewritten)
  elseif field and field ~= new_field then
    redis.call('HDEL', sessions, field)
  end
  redis.call('HSET', sessions, unpack(changed))
end

-- Notes that a session waits that has returned; its return once: what passes until there is room is no
-- pause.
local function note_wait(sessions, field, session, memory, set, is_rewritten, now)
  set.waited = now
  if session.waits == 0 then
    if is_in_stay(session, memory, now) then
      note_return(set, session, memory, is_rewritten)
    end
    session.waits = 1
    redis.call('HSET', sessions, field, $pack(SESSION, session))
  end
  redis.call('HSET', sessions, '', $pack(WORKING_SET, set))
end

-- Whether the call may be placed now, of which the replica `most.replica` holds most, `most.chunks`: its
-- session goes on, or the working set has room for it, or becomes no larger; and it is not a new one
-- while another one returns and waits. If so, it is noted, unless only asked to explain; otherwise
-- returns what it waits for.
local function hold_back(sessions, leases, ask, most, ready, now, explain)
  if #ask.path < LANDMARK_BYTES then
    return nil
  end
  local memory = memory_of(ready)
  if memory.capacity == 0 then
    return nil
  end
  local set = set_in(redis.call('HGET', sessions, ''))
  local is_rare = are_rare(set, memory)
  local find = is_rare and find_sampled or find_session
  local session, new_field = find(sessions, ask.path, most.chunks)
  keep_counted(sessions, leases, ready, memory, set, is_rare, now)
  if not new_field then
    return nil
  end
  local named = ask.session ~= '' and redis.call('HGET', sessions, ask.session) or nil
  local rewritten = not session and session_named(sessions, leases, named) or nil
  session = session or rewritten
  local is_back = session ~= nil
  local others = set.held - (is_back and share_of(session, memory, set, now) or 0)
  local base = is_back and session.base or tokens_of(most.chunks, most.replica)
  local held = math.max(0, ask.prompt + ask.output - base)
  local needs = math.min(held, memory.capacity / #ready) -- a session is at one replica
  local room = room_of(memory, set, is_back)
  local may_wait = ask.may_wait and not is_rare and not (is_back and is_kept(session, most))
  local is_crowded = likely_in(set) * (others + needs) > room and others + needs > set.held
  local is_behind = not is_back and now - set.waited < TURN_MS
  if may_wait and (is_crowded or is_behind) then
    if is_back and not explain then
      note_wait(sessions, session.field or named, session, memory, set, rewritten ~= nil, now)
    end
    local working_set_tokens, room_tokens, active = others, math.floor(room), set.active
    return $pack(CROWDED)
  end
  if explain then
    return nil
  end
  if not is_back or rewritten then
    if set.sessions >= $MOST_SESSIONS then
      return nil
    end
    set.sessions = set.sessions + 1
  end
  if not is_back or not is_in_stay(session, memory, now) then
    set.active = set.active + 1
  elseif session.waits == 0 then
    note_return(set, session, memory, rewritten ~= nil)
  end
  if rewritten then
    note_rewritten(set, rewritten, memory, now)
  end
  set.held = others + math.floor(likely_after(set, is_back and 'later' or 'first') * held)
  note_call(sessions, ask, set, session, rewritten, base, held, new_field, named, now)
end

return hold_back
