-- Leases of one pool, and what they sum to. `leases` (sorted set) says when each ends, `parts`
-- (hash) what it reserves, `loads` (hash) the sums of the parts per owner, so that placing reads
-- one row a replica, not its leases. An owner is "<incarnation>:<replica>".
--
-- Both are packed: reading 64 loads is twice as fast as text. A script opens the book, changes loads
-- in memory, and closes the book at its end, which writes each changed load once.

local LEASE_GRACE_MS = 60000 -- keys outlive their last lease by this
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

-- Takes what the lease reserves out of its owner's load; whether it reserved anything.
local function end_part(book, lease)
  local part = redis.call('HGET', book.parts, lease)
  if part then
    local $names(PART) = unpack_part(part)
    add_load(book, owner, -work, -room, -waiting, -1)
  end
  return part
end

local function end_lease(book, lease)
  if end_part(book, lease) then
    redis.call('ZREM', book.leases, lease)
    redis.call('HDEL', book.parts, lease)
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
    redis.call('ZREM', book.leases, unpack(expired)) -- also those whose parts were evicted
    first = redis.call('ZRANGE', book.leases, 0, 0)
  end
  if not first[1] then
    redis.call('DEL', book.parts, book.loads) -- nothing leased, nothing owed
    book.rows, book.changed, book.complete = {}, {}, true
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

-- Called when the book is closed, with the longest time that a new lease lasts.
local function keep_book(book, lasts_ms)
  if redis.call('PTTL', book.leases) < lasts_ms + LEASE_GRACE_MS / 2 then
    for _, key in ipairs({ book.leases, book.parts, book.loads }) do
      redis.call('PEXPIRE', key, lasts_ms + LEASE_GRACE_MS)
    end
  end
end
