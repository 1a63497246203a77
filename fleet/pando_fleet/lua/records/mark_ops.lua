-- Marks of one pool, each a `MarkRow`. `ends_ms` is when a mark expires, done or not.

local TYPES = $types(MarkRow)

-- The mark in a row, or nil if the row is invalid, which marks.py reports.
local function decoded_mark(row)
  local is_json, mark = pcall(cjson.decode, row)
  if not is_json or type(mark) ~= 'table' then
    return nil
  end
  for name, kind in pairs(TYPES) do
    if type(mark[name]) ~= kind then
      return nil
    end
  end
  return mark
end

local function read_mark(marks, kind, replica)
  local row = redis.call('HGET', marks, kind .. ':' .. replica)
  return row and decoded_mark(row)
end

local function write_mark(marks, mark)
  redis.call('HDEL', marks, '') -- first, so that it works with full memory: memory_ops.lua
  redis.call('HSET', marks, mark.kind .. ':' .. mark.replica, cjson.encode(mark))
end

local function is_over(mark, now)
  return mark.ends_ms <= now or mark.state == $MarkState.DONE or mark.state == $MarkState.SKIPPED
end

-- Why placement must not use the replica now (DRAIN or WARM), or ''.
local function withheld(marks, replica, now)
  for _, kind in ipairs({ $MarkKind.DRAIN, $MarkKind.WARM }) do
    local mark = read_mark(marks, kind, replica)
    if mark and not is_over(mark, now) then
      return kind
    end
  end
  return ''
end
