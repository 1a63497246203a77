-- The token buckets of one tenant; `records/rate_limits.py` is the other half, the API that calls them.
-- A bucket holds a minute's worth of a limit and fills up steadily. It is stored as one number, the
-- time when it will be full again (GCRA's theoretical arrival time): taking n moves that time on by n
-- shares of a minute. So nothing needs to run to fill it, a full bucket is not stored at all, and a
-- limit may change at any time.
--
-- `requests` and `tokens` are fields of the hash `buckets`; times are milliseconds with fractions.

local MINUTE_MS = 60000
local ROUNDING_MS = 0.5 -- largest error of summed fractions; far too small to be visible

local function full_at(buckets, field, now)
  return math.max(tonumber(redis.call('HGET', buckets, field) or '') or 0, now)
end

local function keep(buckets, field, time, now)
  redis.call('HDEL', buckets, '') -- first, so that it works with full memory: memory_ops.lua
  redis.call('HSET', buckets, field, string.format('%.4f', time))
  local ttl = math.ceil(time - now)
  if redis.call('PTTL', buckets) < ttl then
    redis.call('PEXPIRE', buckets, ttl)
  end
end
