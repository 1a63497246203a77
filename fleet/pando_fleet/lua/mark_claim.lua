-- KEYS marks; ARGV now or '', kind, replica, router, claim ms.
-- Returns the milliseconds left to the mark, and its JSON, where it is open, or its claim is this router's or has ended; or nil.
local now = now_ms(ARGV[1])
local mark = read_mark(KEYS[1], ARGV[2], ARGV[3])
if not mark or is_over(mark, now) then
  return false
end
if mark.state == 'claimed' and mark.router ~= ARGV[4] and mark.claim_ends_ms > now then
  return false
end
mark.state, mark.router, mark.claim_ends_ms = 'claimed', ARGV[4], now + tonumber(ARGV[5])
write_mark(KEYS[1], mark)
return { mark.ends_ms - now, cjson.encode(mark) }
