-- Leases of one pool, and what they sum to. `leases` (sorted set) says when each ends, `parts`
-- (hash) what it reserves, `loads` (hash) the sums of the parts per owner, so that placing reads
-- one row a replica, not its leases. An owner is "<incarnation>:<replica>".
--
-- Both are packed: reading 64 loads is twice as fast as text. A script opens the book, changes loads
-- in memory, and closes the book at its end, which writes each changed load once.
--
-- The three keys have no TTL, or Redis might evict them like trees: they go with the last lease. What
-- Redis lost all the same comes back by renewals, which are whole, and by `mend_book`.

local EXPIRE_BATCH = 64 -- leases ended at one call, so that no call is slow

$reader(PART)
$reader(LOAD)

local function open_book(leases, parts, loads)
  return {
    leases = leases, parts = parts, loads = loads,
    rows = {}, -- loads by owner, as far as they are known
    complete = false, -- whether those are all
    changed = {},
  }
end

local function load_in(row)
  local $names(LOAD) = unpack_load(row)
  return { work = work, room = room, waiting = waiting, requests = requests }
end

local function load_of(book, owner)
  local load = book.rows[owner]
  if not load then
    local row = not book.complete and redis.call('HGET', book.loads, owner)
    load = row and load_in(row) or { work = 0, room = 0, waiting = 0, requests = 0 }
    book.rows[owner] = load
  end
  return load
end

local function read_all_loads(book)
  local pairs_read = redis.call('HGETALL', book.loads)
  for i = 1, #pairs_read, 2 do
    local owner = pairs_read[i]
    book.rows[owner] = book.rows[owner] or load_in(pairs_read[i + 1])
  end
  book.complete = true
end

-- Sums are clamped: memory pressure may make Redis evict one of the keys and not the others.
local function add_load(book, owner, work, room, waiting, requests)
  local load = load_of(book, owner)
  load.work = math.max(0, load.work + work)
  load.room = math.max(0, load.room + room)
  load.waiting = math.max(0, load.waiting + waiting)
  load.requests = load.requests + requests
  book.changed[owner] = load
end

local function close_book(book)
  local set, gone = {}, {}
  for owner, load in pairs(book.changed) do
    if load.requests > 0 then
      set[#set + 1] = owner
      set[#set + 1] = $pack(LOAD, load)
    else
      gone[#gone + 1] = owner
    end
  end
  if #set > 0 then
    redis.call('HSET', book.loads, unpack(set))
  end
  if #gone > 0 then
    redis.call('HDEL', book.loads, unpack(gone))
  end
end

-- Adds what a part reserves to its owner's load, or takes it out where `sign` is -1.
local function count_part(book, part, sign)
  local $names(PART) = unpack_part(part)
  add_load(book, owner, sign * work, sign * room, sign * waiting, sign)
end

-- Takes what the lease reserves out of its owner's load; whether it reserved anything.
local function end_part(book, lease)
  local part = redis.call('HGET', book.parts, lease)
  if part then
    count_part(book, part, -1)
  end
  return part
end

local function end_lease(book, lease)
  redis.call('ZREM', book.leases, lease)
  if end_part(book, lease) then
    redis.call('HDEL', book.parts, lease)
  end
end

-- Writes the whole lease, as its router knows it; mostly all but its end is there.
local function renew_lease(book, lease, ends_ms, part)
  redis.call('ZADD', book.leases, ends_ms, lease)
  local known = redis.call('HGET', book.parts, lease)
  if known ~= part then
    if known then
      count_part(book, known, -1)
    end
    count_part(book, part, 1)
    redis.call('HSET', book.parts, lease, part)
  end
end

-- The replica has seen the request through its prefill: from here on its heartbeat tells its share.
local function end_prefill(book, lease)
  local part = redis.call('HGET', book.parts, lease)
  if part then
    local $names(PART) = unpack_part(part)
    add_load(book, owner, -work, -room, -waiting, 0)
    work, room, waiting = 0, 0, 0
    redis.call('HSET', book.parts, lease, $pack(PART))
  end
end

local function end_expired_leases(book, now)
  local first = redis.call('ZRANGE', book.leases, 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) <= now then
    local expired = redis.call('ZRANGEBYSCORE', book.leases, '-inf', now, 'LIMIT', 0, EXPIRE_BATCH)
    for _, lease in ipairs(expired) do
      end_lease(book, lease)
    end
  end
end

-- A lease of the same name is replaced: a call that is sent again after a lost answer counts once.
-- Whether there was one, maybe another owner's.
local function add_lease(book, lease, owner, work, room, now, lasts_ms)
  local is_new = redis.call('ZADD', book.leases, now + lasts_ms, lease) == 1
  local replaced = not is_new and end_part(book, lease)
  local waiting = 1
  redis.call('HSET', book.parts, lease, $pack(PART))
  add_load(book, owner, work, room, waiting, 1)
  return replaced
end

-- Makes leases, parts and loads agree where Redis lost one of them, which their counts tell. A part
-- without an end gets one, as its lease may go on; a lease without a part goes. Then the routers are
-- forgotten: each renews all of its leases when it finds itself unknown.
--
-- One call does all of it, because sums cannot be made anew while others change them.
local function mend_book(book, routers, now)
  read_all_loads(book)
  local requests, count = 0, redis.call('ZCARD', book.leases)
  for _, load in pairs(book.rows) do
    requests = requests + load.requests
  end
  if count == requests and count == redis.call('HLEN', book.parts) then
    return
  end
  redis.call('DEL', book.loads, routers)
  book.rows, book.changed = {}, {}
  local lost = {}
  for _, lease in ipairs(redis.call('ZRANGE', book.leases, 0, -1)) do
    lost[lease] = true
  end
  local parts = redis.call('HGETALL', book.parts)
  for i = 1, #parts, 2 do
    local lease = parts[i]
    count_part(book, parts[i + 1], 1)
    if not lost[lease] then
      redis.call('ZADD', book.leases, now + $MENDED_MS, lease)
    end
    lost[lease] = nil
  end
  for lease in pairs(lost) do
    redis.call('ZREM', book.leases, lease)
  end
end
