-- Token buckets of one tenant, which hold what a limit allows in a minute and fill up steadily. A
-- bucket is kept as one number, the time when it will be full again (GCRA's theoretical arrival
-- time): taking n from it moves that time on by n shares of a minute. So nothing needs to run for
-- it to fill, a full one need not be kept at all, and a limit may change at any time.
--
-- `requests` and `tokens` are fields of the hash `buckets`, times are milliseconds with fractions.

local MINUTE_MS = 60000
local ROUNDING_MS = 0.5 -- what sums of fractions may be off by, far below what anyone can see

local function full_at(buckets, field, now)
  return math.max(tonumber(redis.call('HGET', buckets, field) or '') or 0, now)
end

local function keep(buckets, field, time, now)
  redis.call('HDEL', buckets, '') -- first, so that memory may be full: memory_ops.lua
  redis.call('HSET', buckets, field, string.format('%.4f', time))
  local ttl = math.ceil(time - now)
  if redis.call('PTTL', buckets) < ttl then
    redis.call('PEXPIRE', buckets, ttl)
  end
end
