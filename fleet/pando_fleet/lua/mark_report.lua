-- KEYS marks; ARGV now or '', kind, replica, router, claim ms, tokens, prefixes, state, reason.
-- Tokens and prefixes are added. Returns 1, or 0 where the mark is over or not this router's.
local now = now_ms(ARGV[1])
local mark = read_mark(KEYS[1], ARGV[2], ARGV[3])
if not mark or is_over(mark, now) or mark.router ~= ARGV[4] then
  return 0
end
mark.claim_ends_ms = now + tonumber(ARGV[5])
mark.tokens, mark.prefixes = mark.tokens + tonumber(ARGV[6]), mark.prefixes + tonumber(ARGV[7])
mark.state, mark.reason = ARGV[8], ARGV[9]
write_mark(KEYS[1], mark)
return 1
