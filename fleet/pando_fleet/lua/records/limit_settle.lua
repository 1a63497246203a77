local $names(SettleLimit) = $arguments(SettleLimit)
local time = full_at(buckets, 'tokens', now) + tokens * MINUTE_MS / token_limit
keep(buckets, 'tokens', math.max(time, now), now)
