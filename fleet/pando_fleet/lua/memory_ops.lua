-- Memory that runs out: trees make room before Redis takes it, and bookkeeping is written all the same.
--
-- A Redis whose memory is full refuses what may need memory as a script's first write only: behind
-- another write it refuses nothing, because a script cannot stop in the middle. So a script whose rows
-- must get through begins with a PERSIST of a key that has no TTL anyway, or with an HDEL of a field that
-- no hash has.

local MOST_CUT = 4096 -- leaves a beat: two milliseconds, and more than any replica computes meanwhile

-- Whether the memory is full and Redis may evict nothing: asks for a write that changes nothing. `key` is a
-- sorted set. To be called before any other write.
local function is_memory_full(key)
  local answer = redis.pcall('ZADD', key, 'XX', 0, '')
  local refused = type(answer) == 'table' and answer.err
  redis.call('PERSIST', key)
  return refused and string.find(refused, 'OOM', 1, true) ~= nil
end

local function number_in(info, field)
  return tonumber(string.match(info, '\n' .. field .. ':(%d+)')) or 0
end

-- The share of all memory that is used above what trees may fill; 0 where Redis has no maxmemory, or
-- keeps it to itself.
local function excess_share()
  local info = redis.pcall('INFO', 'memory')
  if type(info) ~= 'string' then
    return 0
  end
  local most = number_in(info, 'maxmemory')
  local used = number_in(info, 'used_memory') - number_in(info, 'mem_not_counted_for_evict')
  return most > 0 and math.max(0, 1 - $TREES_PERCENT / 100 * most / used) or 0
end

-- Cuts this tree's share of the excess, its coldest leaves. Who uses its tree fills it again, so trees
-- share the memory as their replicas use it.
local function make_room(tree)
  local held = redis.pcall('ZCARD', tree) -- a heartbeat is not to fail of a key of another kind
  local cut = 0
  if type(held) == 'number' and held > 0 then
    cut = math.min(math.ceil(excess_share() * held), MOST_CUT)
  end
  if cut > 0 then
    redis.call('ZREMRANGEBYRANK', tree, 0, cut - 1)
  end
end
