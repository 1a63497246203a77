-- LoRA adapters as placement sees them, for requests that need one: others cost nothing here. A
-- heartbeat writes what a replica holds; a placement adds what it will make the replica load, so that
-- those which come before its next heartbeat follow there instead of loading it elsewhere, too.
--
-- A replica without such a row, such as a worker of the previous release, is taken to hold all its
-- adapters.

-- The times until any replica in the pool has measured. Only their size beside the others' matters.
local PRIOR_LOAD = 0.1 -- seconds from host memory into a slot
local PRIOR_SLOT_WAIT = 1 -- seconds until one more slot is free

-- Whether a row's list has the key. Lists hold dozens of keys of one length, each with a space.
local function has(list, key)
  return list:find(key, 1, true) ~= nil
end

local function read_slots(r, row)
  local is_whole, $names(ADAPTERS) = pcall(unpack_adapters, row)
  if not is_whole or incarnation ~= r.incarnation then
    return nil
  end
  return {
    name = r.name, free_slots = free_slots, load_s = load_s, read_s = read_s,
    slot_wait_s = slot_wait_s, incarnation = incarnation, device = device, waiting = waiting,
    host = host, loading = loading, ahead = ahead, idle_s = idle_s,
  }
end

-- The slots of the replicas that report them, by name.
local function read_all_slots(ready, adapters)
  local names, slots, rows = {}, {}, {}
  for i, r in ipairs(ready) do
    names[i] = r.name
  end
  if #names == 0 then
    return slots
  end
  for i, row in ipairs(redis.call('HMGET', adapters, unpack(names))) do
    local found = row and read_slots(ready[i], row)
    if found then
      slots[found.name], rows[#rows + 1] = found, found
    end
  end
  -- A replica's own times would keep loads, and so new measurements, from one that was slow once.
  local usual_load = mean_of(rows, 'load_s', PRIOR_LOAD)
  local usual_read = mean_of(rows, 'read_s', 0)
  local usual_wait = mean_of(rows, 'slot_wait_s', PRIOR_SLOT_WAIT)
  local stays = mean_of(rows, 'idle_s', 0)
  for _, row in ipairs(rows) do
    row.load, row.read = usual_load, usual_read
    row.wait = row.slot_wait_s > 0 and row.slot_wait_s or usual_wait
    -- As in weigh_leaves: the time to load again what gives way, which host memory may have lost by
    -- then, times how likely it is needed.
    row.evict = row.idle_s > 0 and (row.load + row.read) * stays / (row.idle_s + stays) or 0
  end
  return slots
end

-- The seconds of the load; those before until there is a slot: one is free, or it is as many slots
-- away as adapters wait before it, of which one that waits already is the last; and those that another
-- adapter's next request will need, because it gave way.
local function adapter_delays(row, key)
  if not row or has(row.device, key) then
    return 0, 0, 0
  end
  local load_s = (1 + row.loading) * row.load + (has(row.host, key) and 0 or row.read)
  if has(row.waiting, key) then
    return load_s, row.ahead * row.wait, 0
  elseif row.free_slots >= 1 then
    return load_s, 0, row.evict
  end
  return load_s, (row.ahead + 1) * row.wait, row.load
end

-- The next heartbeat of a replica that got a request for this adapter, as far as it is known now.
local function expect_load(row, key, adapters)
  if not row or has(row.device, key) or has(row.waiting, key) then
    return
  end
  if row.free_slots >= 1 then
    row.free_slots, row.device = row.free_slots - 1, row.device .. key .. ' '
    row.loading = row.loading + 1
  else
    row.ahead, row.waiting = row.ahead + 1, row.waiting .. key .. ' '
  end
  redis.call('HSET', adapters, row.name, $pack(ADAPTERS, row))
end
