-- KEYS leases, parts, loads; ARGV now or ''. Returns owner, requests leased to it, and so on.
local now = now_ms(ARGV[1])
local book = open_book(1)
end_expired_leases(book, now)
read_all_loads(book)
close_book(book)
local found = {}
for owner, load in pairs(book.rows) do
  if load.requests > 0 then
    found[#found + 1] = owner
    found[#found + 1] = load.requests
  end
end
return found
