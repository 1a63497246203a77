local $names(ClaimMark) = $arguments(ClaimMark)
local mark = read_mark(marks, kind, replica)
if not mark or is_over(mark, now) then
  return false
end
if mark.state == $MarkState.CLAIMED and mark.router ~= router and mark.claim_ends_ms > now then
  return false
end
mark.state, mark.router, mark.claim_ends_ms = $MarkState.CLAIMED, router, now + $CLAIM_MS
write_mark(marks, mark)
return { mark.ends_ms - now, cjson.encode(mark) }
