-- Takes what a tenant used beyond what it had reserved, or gives back what it did not use.
--
-- KEYS the tenant's hash; ARGV now or '', tokens a minute, tokens (negative: given back).

local now, limit, tokens = now_ms(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = full_at('tokens', now) + tokens * MINUTE_MS / limit
keep('tokens', math.max(time, now), now)
