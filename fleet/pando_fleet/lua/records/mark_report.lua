local $names(ReportMark) = $arguments(ReportMark)
if not $words(MarkState)[state] then
  return redis.error_reply('unknown state of a mark: ' .. state)
end
local mark = read_mark(marks, kind, replica)
if not mark or is_over(mark, now) or mark.router ~= router then
  return 0
end
mark.claim_ends_ms = now + $CLAIM_MS
mark.tokens, mark.prefixes = mark.tokens + tokens, mark.prefixes + prefixes
mark.state, mark.reason = state, reason
write_mark(marks, mark)
return 1
