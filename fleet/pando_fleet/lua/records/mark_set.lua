local $names(SetMark) = $arguments(SetMark)
if not $words(MarkKind)[kind] then
  return redis.error_reply('unknown kind of mark: ' .. kind)
end
local before = read_mark(marks, kind, replica)
if before and kind ~= $MarkKind.DRAIN and not is_over(before, now) then
  return 0
end
local all = redis.call('HGETALL', marks)
for i = 1, #all, 2 do
  local mark = decoded_mark(all[i + 1])
  if not mark or mark.ends_ms + $MARK_KEPT_MS <= now then
    redis.call('HDEL', marks, all[i])
  end
end
write_mark(marks, {
  kind = kind, replica = replica, budget_tokens = budget_tokens, ends_ms = now + lasts_ms,
  state = $MarkState.OPEN, router = '', claim_ends_ms = 0, tokens = 0, prefixes = 0, reason = '',
})
local ttl = lasts_ms + $MARK_KEPT_MS
if redis.call('PTTL', marks) < ttl then
  redis.call('PEXPIRE', marks, ttl)
end
if kind ~= $MarkKind.HAND_OFF then
  redis.call('HDEL', terms, replica) -- placement stops using it at once; heartbeats obey the mark, too
end
return 1
