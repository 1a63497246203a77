-- Marks of one pool: a hash of "<kind>:<replica>" to JSON, see marks.py. `ends_ms` is when a mark
-- stops to count, done or not; it can be read for MARK_KEPT_MS more.

local MARK_KEPT_MS = 600000

-- The mark in a row, or nil: what does not fit is none, and marks.py tells of it.
local function decoded_mark(row)
  local is_json, mark = pcall(cjson.decode, row)
  local fits = is_json and type(mark) == 'table'
  for _, name in ipairs({ 'ends_ms', 'claim_ends_ms', 'tokens', 'prefixes' }) do
    fits = fits and type(mark[name]) == 'number'
  end
  return fits and mark or nil
end

local function read_mark(marks, kind, replica)
  local row = redis.call('HGET', marks, kind .. ':' .. replica)
  return row and decoded_mark(row)
end

local function write_mark(marks, mark)
  redis.call('HSET', marks, mark.kind .. ':' .. mark.replica, cjson.encode(mark))
end

local function is_over(mark, now)
  return mark.ends_ms <= now or mark.state == 'done' or mark.state == 'skipped'
end

-- Why placement must not use the replica now ('drain' or 'warm'), or ''.
local function withheld(marks, replica, now)
  for _, kind in ipairs({ 'drain', 'warm' }) do
    local mark = read_mark(marks, kind, replica)
    if mark and not is_over(mark, now) then
      return kind
    end
  end
  return ''
end
