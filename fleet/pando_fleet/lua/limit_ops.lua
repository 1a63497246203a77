-- Token buckets of one tenant, which hold what a limit allows in a minute and fill up steadily. A
-- bucket is kept as one number, the time when it will be full again (GCRA's theoretical arrival
-- time): taking n from it moves that time on by n shares of a minute. So nothing needs to run for
-- it to fill, a full one need not be kept at all, and a limit may change at any time.
--
-- KEYS[1] is a hash, `requests` and `tokens` are its fields, times are milliseconds with fractions.

local MINUTE_MS = 60000
local ROUNDING_MS = 0.5 -- what sums of fractions may be off by, far below what anyone can see

local function full_at(field, now)
  return math.max(tonumber(redis.call('HGET', KEYS[1], field) or '') or 0, now)
end

local function keep(field, time, now)
  redis.call('HSET', KEYS[1], field, string.format('%.4f', time))
  local ttl = math.ceil(time - now)
  if redis.call('PTTL', KEYS[1]) < ttl then
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end
