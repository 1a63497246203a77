-- session_ops() returns `hold_back`, for the calls that bound sessions: it lets a call wait while the
-- working set of the pool's sessions has no room for it. session_rows.lua finds the session that a call
-- continues, working_set.lua counts the tokens.
--
-- A session goes on while a replica still has most of its conversation. One whose conversation was
-- evicted takes as much from others as a new one does, however short its pause was, so it waits for room
-- like that. Else sessions that grow beyond the memory would evict each other until they end. A call that
-- makes the working set no larger, as when an agent shortens its conversation, never waits.
--
-- Where replicas have time to spare, a conversation that was evicted can be computed again and delay
-- nobody. The pool notes the share of its replicas with requests that wait for a first token; in the
-- rest of the time it could compute as large a share of its memory again, so the working set may be
-- larger than the memory by that. New sessions get half of it, so that those that return find room, and
-- seldom wait: all long waits of calls were theirs. While one that returns waits, new ones wait, too, or
-- small new ones would take the room that a large one needs, as it becomes free, again and again.

local TURN_MS = 1000 -- routers ask more often for the call that waits first

local function tokens_of(chunks, replica)
  return math.floor(chunks * $CHUNK_BYTES / replica.bytes_per_token)
end

-- Whether the replica that holds most of the session's prompt has half of what the session added to it.
local function is_kept(session, most)
  local replica, base = most.replica, session.base
  return session.chunks
    and 2 * (tokens_of(most.chunks, replica) - base) >= tokens_of(session.chunks, replica) - base
end

-- How large the working set may become by this call.
local function room_of(memory, set, is_back)
  local spare = 1 - set.busy
  return memory.capacity * (1 + (is_back and spare or spare / 2))
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
