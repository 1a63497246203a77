-- Writes where a replica holds its LoRA adapters: fields of the hash `adapters`, one for each adapter
-- that is not on disk only, with a `Held` as its value, and the list of all, by which they are removed.
-- A list is short keys, each with its `Held` behind it.

local ENTRY = $SHORT_KEY_CHARS + 1 -- characters
local BATCH = 1000 -- entries per call: Lua's unpack has room for about 8,000 values

-- Calls `run` with some fields and, if `with_values`, each one's value behind it, until all had their turn.
local function in_batches(list, replica, with_values, run)
  for first = 1, #list, ENTRY * BATCH do
    local fields = {}
    for at = first, math.min(first + ENTRY * BATCH, #list) - 1, ENTRY do
      fields[#fields + 1] = place_field(replica, list:sub(at, at + ENTRY - 2))
      if with_values then
        fields[#fields + 1] = list:sub(at + ENTRY - 1, at + ENTRY - 1)
      end
    end
    run(fields)
  end
end

local function write_places(adapters, replica, list)
  local list_field = place_field(replica, '')
  local before = redis.call('HGET', adapters, list_field) or ''
  if before == list then
    return
  end
  in_batches(before, replica, false, function(fields)
    redis.call('HDEL', adapters, unpack(fields))
  end)
  in_batches(list, replica, true, function(fields)
    redis.call('HSET', adapters, unpack(fields))
  end)
  redis.call('HSET', adapters, list_field, list)
end

local function forget_adapters(adapters, replica)
  write_places(adapters, replica, '')
  redis.call('HDEL', adapters, replica, place_field(replica, ''))
end
