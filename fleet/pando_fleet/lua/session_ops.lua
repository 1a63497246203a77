-- The sessions of one pool, and their working set: the KV tokens that must stay cached so that none of
-- them computes its conversation again. `sessions` (a hash) has a row for each, by the key of the last
-- landmark on its last prompt's path: every $LANDMARK_CHUNKS-th chunk is one. A call that extends that
-- prompt has this landmark on its own path, so sessions need no names; the row of one that has a name
-- is by the name's digest. The field '' has the working set as of its last count.
--
-- A session holds what it added to what others held when it began. It runs while its last call has a
-- lease. While it pauses, it counts by the probability that it returns before the pool could have
-- computed its prefix again from idle: a session that paused for t returns within the next u with
-- probability u / (t + u), on any time scale (as `weigh_leaves` says of leaves); u is the time in which
-- the pool computes all the tokens that it holds, by the prefill rates of its replicas. A pause shorter
-- than u costs the pool less memory than the computation would cost it time, so such a session goes on.

local COUNT_MS = 250 -- between two counts of the working set
local FORGET_MS = 3600000 -- of a pause
local AT_ONCE = 1000 -- fields per call

$reader(SESSION)
$reader(WORKING_SET)

-- A session's row as a table; nil for a broken one, or one of another release.
local function session_in(row)
  local is_whole, $names(SESSION) = pcall(unpack_session, row)
  if is_whole then
    return { base = base, held = held, since = since, paused = paused, lease = lease }
  end
end

-- The session that the path extends, or the one of this name, or nil; the field of its row, and that of
-- its row from now on, which is nil for a path without landmarks.
local function find_session(sessions, path, name)
  if name ~= '' then
    local row = redis.call('HGET', sessions, name)
    return row and session_in(row) or nil, name, name
  end
  local fields, last = {}, math.floor(#path / $KEY_BYTES / $LANDMARK_CHUNKS)
  for i = 1, last do
    fields[i] = chunk_key(path, (last - i + 1) * $LANDMARK_CHUNKS)
  end
  if last > 0 then
    for i, row in ipairs(redis.call('HMGET', sessions, unpack(fields))) do
      local session = row and session_in(row)
      if session then
        return session, fields[i], fields[1]
      end
    end
  end
  return nil, nil, fields[1]
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

-- How long, in ms, a pause of the session may be so that its memory costs the pool less than its
-- computation would: the time in which the pool computes all that it holds, in prompts like this one.
local function stay_of(session, memory)
  return 1000 * memory.seconds * (1 + (session.base + session.held) / 2 / memory.doubling)
end

local function goes_on(session, memory, now)
  return session.paused == 0 or now - session.paused <= stay_of(session, memory)
end

-- Its tokens, weighed by the probability that it returns within its stay.
local function share_of(session, memory, now)
  if session.paused == 0 then
    return session.held
  end
  local stay = stay_of(session, memory)
  return session.held * stay / (stay + now - session.paused)
end

local function in_parts(command, key, values)
  for first = 1, #values, AT_ONCE do
    redis.call(command, key, unpack(values, first, math.min(first + AT_ONCE - 1, #values)))
  end
end

-- Counts the working set, notes which sessions pause, and forgets those that did so for long; with
-- many sessions, for longer than their memory is worth.
local function count_sessions(sessions, leases, memory, before, now)
  local rows, gone, changed, held = redis.call('HGETALL', sessions), {}, {}, 0
  local are_many = #rows > $MOST_SESSIONS -- half as many: a field and a row each
  for i = 1, #rows, 2 do
    local field = rows[i]
    local session = field ~= '' and session_in(rows[i + 1])
    if session and session.paused == 0 and not redis.call('ZSCORE', leases, session.lease) then
      session.paused = math.max(session.since, before) -- at the earliest
      changed[#changed + 1], changed[#changed + 2] = field, $pack(SESSION, session)
    end
    local longest = session and are_many and stay_of(session, memory) or FORGET_MS
    if session and (session.paused == 0 or now - session.paused <= longest) then
      held = held + share_of(session, memory, now)
    elseif field ~= '' then
      gone[#gone + 1] = field
    end
  end
  in_parts('HSET', sessions, changed)
  in_parts('HDEL', sessions, gone)
  return held
end

-- The working set in tokens, and when it was counted, at most COUNT_MS ago. A count is noted whatever
-- becomes of the call, so that no flood of calls makes each of them count.
local function working_set(sessions, leases, memory, now)
  local row = redis.call('HGET', sessions, '')
  local is_whole, counted, held = false, 0, 0
  if row then
    is_whole, counted, held = pcall(unpack_working_set, row)
  end
  if is_whole and counted <= now and now - counted < COUNT_MS then
    return { counted = counted, held = held }
  end
  local set = { counted = now }
  set.held = count_sessions(sessions, leases, memory, is_whole and counted or 0, now)
  redis.call('HSET', sessions, '', $pack(WORKING_SET, set))
  redis.call('PEXPIRE', sessions, FORGET_MS)
  return set
end

-- Whether the call of `prompt` tokens, of which `shared` are held already, may be placed now: its
-- session goes on, or the working set has room for it. If so, it is noted, unless only asked to
-- explain; otherwise returns what it waits for.
local function hold_back(sessions, leases, ask, shared, ready, now, explain)
  local session, field, new_field = find_session(sessions, ask.path, ask.session)
  if not new_field then
    return nil
  end
  local memory = memory_of(ready)
  local set = working_set(sessions, leases, memory, now)
  local is_back = session ~= nil
  local others = set.held - (is_back and share_of(session, memory, now) or 0)
  local held = math.max(0, ask.prompt + ask.output - (is_back and session.base or shared))
  local needs = math.min(held, memory.capacity / #ready) -- a session is at one replica
  local is_free = is_back and goes_on(session, memory, now) or memory.capacity == 0
    or not ask.may_wait
  if not is_free and others + needs > memory.capacity then
    local working_set_tokens, capacity_tokens = others, memory.capacity
    return $pack(CROWDED)
  end
  if explain then
    return nil
  end
  if not is_back and redis.call('HLEN', sessions) > $MOST_SESSIONS then
    return nil
  end
  local base = is_back and session.base or shared
  session = { base = base, held = held, since = now, paused = 0, lease = ask.lease }
  set.held = others + held
  if field and field ~= new_field then
    redis.call('HDEL', sessions, field)
  end
  redis.call('HSET', sessions, new_field, $pack(SESSION, session), '', $pack(WORKING_SET, set))
end
