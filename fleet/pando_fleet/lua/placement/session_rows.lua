-- Finds the session that a call continues: a library of session_ops.lua.
--
-- `sessions` (a hash of a pool) has a row for each session, by the key of a landmark on its last prompt's
-- path: every $LANDMARK_CHUNKS-th chunk is one. A call that extends that prompt has this landmark on its
-- own path, so sessions need no names. A first call's is its last landmark, because it may share those
-- before with others; a later call's is the one before, because agents change the end of a prompt when
-- they extend it. The field '' has the working set as of its last count (working_set.lua).
--
-- A call may have a name, too. By the name's digest, `sessions` has the field of the session that used it
-- last. A call that extends no session continues that one, if its last call has ended: its agent has
-- shortened or rewritten the conversation. The old row then holds nothing, but stays, because a name may
-- be that of an application or a person with several conversations: once a second one goes on under a
-- name, the name stands for SHARED, and says nothing. So no name hides the tokens of a conversation that
-- goes on.
--
-- Where hardly anything returns, only a sample of the sessions is noted, to learn when that changes:
-- those that add one of the landmarks, one in SAMPLED, whose keys end in a certain byte. So most short
-- prompts only read the field '', and most long ones are noted.

local FIRST_LOOK = 5 -- landmarks; a call rarely adds more to its session's last prompt
local LANDMARK_BYTES = $KEY_BYTES * $LANDMARK_CHUNKS -- of a path, up to a landmark and from the last
local SAMPLED = 64 -- one in so many landmarks has rows while returns are rare
local SHARED = '' -- instead of a session's field: the name is that of several

$reader(SESSION)

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
