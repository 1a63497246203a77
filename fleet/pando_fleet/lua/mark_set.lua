-- KEYS marks, terms; ARGV now or '', kind, replica, budget tokens, lasts ms.
-- Returns 1, or 0 where a mark of this kind is at work there: only a drain mark is renewed.
local now, kind, replica = now_ms(ARGV[1]), ARGV[2], ARGV[3]
local lasts = tonumber(ARGV[5])
local before = read_mark(KEYS[1], kind, replica)
if before and kind ~= 'drain' and not is_over(before, now) then
  return 0
end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local mark = decoded_mark(all[i + 1])
  if not mark or mark.ends_ms + MARK_KEPT_MS <= now then
    redis.call('HDEL', KEYS[1], all[i])
  end
end
write_mark(KEYS[1], {
  kind = kind, replica = replica, budget_tokens = tonumber(ARGV[4]), ends_ms = now + lasts,
  state = 'open', router = '', claim_ends_ms = 0, tokens = 0, prefixes = 0, reason = '',
})
local ttl = lasts + MARK_KEPT_MS
if redis.call('PTTL', KEYS[1]) < ttl then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
if kind == 'drain' or kind == 'warm' then
  redis.call('HDEL', KEYS[2], replica) -- placement sees it no more; heartbeats obey the mark too
end
return 1
