-- Leases of one pool, and their sums. This half changes and expires leases; the other half is
-- `placement/keeper.py`, which renews a router's leases and ends those of dead routers. `leases` (a
-- sorted set) has each lease's end, `parts` (a hash) what it reserves, and `loads` (a hash) the sums
-- of the parts per owner, so that placement reads one row per replica instead of its leases. An owner
-- is "<incarnation>:<replica>".
--
-- Parts and loads are packed: reading 64 loads is twice as fast as text. A script opens the book,
-- changes loads in memory, and closes the book at its end, which writes each changed load once.
--
-- The three keys have no TTL, because Redis might evict them like trees; they disappear with the last
-- lease. If Redis loses them anyway, renewals, which are complete, and `mend_book` restore them.

local EXPIRE_BATCH = 64 -- leases ended per call, so that no call is slow

$reader(PART)
$reader(LOAD)

local function open_book(leases, parts, loads)
  return {
    leases = leases, parts = parts, loads = loads,
    rows = {}, -- loads by owner, those read so far
    complete = false, -- whether `rows` has all
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

-- Sums never go below 0: under memory pressure Redis may evict one of the keys but not the others.
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

-- Adds a part's reservation to its owner's load, or subtracts it if `sign` is -1.
local function count_part(book, part, sign)
  local $names(PART) = unpack_part(part)
  add_load(book, owner, sign * work, sign * room, sign * waiting, sign)
end

-- Subtracts the lease's reservation from its owner's load. Returns its part, or false.
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

-- Writes the whole lease as its router knows it; usually only its end has changed.
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

-- The request's prefill has ended: from now on the replica's heartbeat includes its share.
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

-- Replaces a lease of the same name, so a call repeated after a lost answer counts once. Returns
-- whether there was one, perhaps with another owner.
local function add_lease(book, lease, owner, work, room, now, lasts_ms)
  local is_new = redis.call('ZADD', book.leases, now + lasts_ms, lease) == 1
  local replaced = not is_new and end_part(book, lease)
  local waiting = 1
  redis.call('HSET', book.parts, lease, $pack(PART))
  add_load(book, owner, work, room, waiting, 1)
  return replaced
end

-- Makes leases, parts and loads agree if Redis lost one of them, which their counts reveal. A part
-- without an end gets one, because its lease may continue; a lease without a part is removed. Then
-- the routers are forgotten, so that each renews all of its leases when it finds itself unknown.
--
-- One call does all of it, because sums cannot be recomputed while others change them.
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
