-- LoRA adapters as placement sees them, for requests that need one; others cost nothing here.
-- adapter_ops() returns the functions. The hash `adapters` has two fields more for a replica than its
-- row: what it holds, and for each of these adapters where. So a placement reads a letter of each
-- replica, not its list.
--
-- A heartbeat writes what a replica holds; a placement adds what it will make the replica load, so that
-- those which come before its next heartbeat follow there instead of loading it elsewhere, too.
--
-- A replica without such a row, such as a worker of the previous release, is taken to hold all its
-- adapters.

-- The times until any replica in the pool has measured. Only their size beside the others' matters.
local PRIOR_LOAD = 0.1 -- seconds from host memory into a slot
local PRIOR_SLOT_WAIT = 1 -- seconds until one more slot is free

-- The fields of all replicas for this key, in the order of `ready`.
local function read_fields(ready, key, adapters)
  local fields = {}
  for i = 1, #ready do
    fields[i] = key and place_field(ready[i].name, key) or ready[i].name
  end
  return #fields > 0 and redis.call('HMGET', adapters, unpack(fields)) or fields
end

-- The slots by replica, of those that report them; and the usual times: a replica's own would keep
-- loads, and so new measurements, from one that was slow once.
local function read_slots(ready, adapters)
  local slots, rows = {}, {}
  for i, packed in ipairs(read_fields(ready, nil, adapters)) do
    local is_whole, $names(ADAPTERS) = pcall(unpack_adapters, packed)
    if is_whole and incarnation == ready[i].incarnation then
      local row = {
        free_slots = free_slots, loading = loading, ahead = ahead, idle_s = idle_s, load_s = load_s,
        read_s = read_s, slot_wait_s = slot_wait_s, incarnation = incarnation,
      }
      slots[ready[i]], rows[#rows + 1] = row, row
    end
  end
  return slots, {
    load = mean_of(rows, 'load_s', PRIOR_LOAD),
    read = mean_of(rows, 'read_s', 0),
    wait = mean_of(rows, 'slot_wait_s', PRIOR_SLOT_WAIT),
    stays = mean_of(rows, 'idle_s', 0), -- an adapter in its slot, unused
  }
end

-- The seconds of the load; those before until there is a slot: one is free, or it is as many slots
-- away as adapters wait before it, of which one that waits already is the last; and those that another
-- adapter's next request will need, because it gave way.
local function adapter_delays(row, usual, place)
  if not row or place == $Held.DEVICE then
    return 0, 0, 0
  end
  local load_s = (1 + row.loading) * usual.load + (place == $Held.HOST and 0 or usual.read)
  local wait = row.slot_wait_s > 0 and row.slot_wait_s or usual.wait
  if place == $Held.WAITING then
    return load_s, row.ahead * wait, 0
  elseif row.free_slots < 1 then
    return load_s, (row.ahead + 1) * wait, usual.load
  elseif row.idle_s == 0 then
    return load_s, 0, 0
  end
  -- As in weigh_leaves: the time to load again what gives way, which host memory may have lost by
  -- then, times how likely it is needed.
  return load_s, 0, (usual.load + usual.read) * usual.stays / (row.idle_s + usual.stays)
end

-- The next heartbeat of a replica that got a request for this adapter, as far as it is known now.
local function expect_load(name, row, key, adapters)
  local place = redis.call('HGET', adapters, place_field(name, key))
  if not row or place == $Held.DEVICE or place == $Held.WAITING then
    return
  end
  if row.free_slots >= 1 then
    row.free_slots, row.loading, place = row.free_slots - 1, row.loading + 1, $Held.DEVICE
  else
    row.ahead, place = row.ahead + 1, $Held.WAITING
  end
  -- The list that the next heartbeat compares has it too, so that it is not taken for unchanged.
  local list = place_field(name, '')
  local held = (redis.call('HGET', adapters, list) or '') .. key .. place
  redis.call(
    'HSET', adapters, name, $pack(ADAPTERS, row), list, held, place_field(name, key), place
  )
end

return {
  read_fields = read_fields, read_slots = read_slots, delays = adapter_delays,
  expect_load = expect_load,
}
