-- Takes from both of a tenant's buckets, or from none of them.
--
-- KEYS the tenant's hash; ARGV now or '', requests a minute or 0, tokens a minute or 0, tokens.
-- Returns for requests and for tokens: left, ms until full, ms to wait for (0: there was enough).
-- More tokens than a full bucket has take all of it.

local now = now_ms(ARGV[1])
local limits = { requests = tonumber(ARGV[2]), tokens = tonumber(ARGV[3]) }
local asked = { requests = 1, tokens = math.min(tonumber(ARGV[4]), limits.tokens) }

local waits, before, after = { requests = 0, tokens = 0 }, {}, {}
for field, limit in pairs(limits) do
  if limit > 0 then
    before[field] = full_at(field, now)
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
        keep(field, time, now)
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
