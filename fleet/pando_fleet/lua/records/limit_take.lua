local $names(TakeLimit) = $arguments(TakeLimit)
local limits = { requests = request_limit, tokens = token_limit }
local asked = { requests = 1, tokens = math.min(tokens, token_limit) }

local waits, before, after = { requests = 0, tokens = 0 }, {}, {}
for field, limit in pairs(limits) do
  if limit > 0 then
    before[field] = full_at(buckets, field, now)
    after[field] = before[field] + asked[field] * MINUTE_MS / limit
    local missing = after[field] - now - MINUTE_MS
    if missing > ROUNDING_MS then
      waits[field] = math.ceil(missing)
    end
  end
end
local enough = waits.requests == 0 and waits.tokens == 0

local reply = {}
for _, field in ipairs({ 'requests', 'tokens' }) do
  local limit, left, reset = limits[field], 0, 0
  if limit > 0 then
    local time = before[field]
    if enough then
      time = after[field]
      if time > now then
        keep(buckets, field, time, now)
      end
    end
    local empty = time - now - ROUNDING_MS
    left = math.max(0, math.min(limit, math.floor((MINUTE_MS - empty) * limit / MINUTE_MS)))
    reset = math.ceil(math.max(0, time - now))
  end
  table.insert(reply, left)
  table.insert(reply, reset)
  table.insert(reply, waits[field])
end
return reply
