-- Handles full memory: trees make room before Redis evicts or refuses, and bookkeeping is written in
-- any case. This half acts; `redis/memory.py` is the other half, which only reads the sizes for
-- warnings.
--
-- A Redis with full memory refuses a command that may need memory only as a script's first write: after
-- another write it refuses nothing, because a script cannot stop in the middle. So a script whose rows
-- must be written begins with a PERSIST of a key that has no TTL anyway, or with an HDEL of a field
-- that no hash has.

local MOST_CUT = 4096 -- leaves per heartbeat: two milliseconds; no replica computes as many

-- Whether the memory is full and Redis may not evict; tries a write that changes nothing. `key` is a
-- sorted set. Call it before any other write.
local function is_memory_full(key)
  local answer = redis.pcall('ZADD', key, 'XX', 0, '')
  local refused = type(answer) == 'table' and answer.err
  redis.call('PERSIST', key)
  return refused and string.find(refused, 'OOM', 1, true) ~= nil
end

local function number_in(info, field)
  return tonumber(string.match(info, '\n' .. field .. ':(%d+)')) or 0
end

-- The share of the used memory that exceeds what trees may fill; 0 if Redis has no maxmemory, or hides
-- it.
local function excess_share()
  local info = redis.pcall('INFO', 'memory')
  if type(info) ~= 'string' then
    return 0
  end
  local most = number_in(info, 'maxmemory')
  local used = number_in(info, 'used_memory') - number_in(info, 'mem_not_counted_for_evict')
  return most > 0 and math.max(0, 1 - $TREES_PERCENT / 100 * most / used) or 0
end

-- Cuts this tree's share of the excess, its coldest leaves. A replica in use fills its tree again, so
-- trees share the memory by the use of their replicas.
local function make_room(tree)
  local held = redis.pcall('ZCARD', tree) -- a key of the wrong type must not fail the heartbeat
  local cut = 0
  if type(held) == 'number' and held > 0 then
    cut = math.min(math.ceil(excess_share() * held), MOST_CUT)
  end
  if cut > 0 then
    redis.call('ZREMRANGEBYRANK', tree, 0, cut - 1)
  end
end
