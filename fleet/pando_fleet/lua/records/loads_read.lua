local $names(ReadLoads) = $arguments(ReadLoads)
local book = open_book(leases, parts, loads)
end_expired_leases(book, now)
mend_book(book, routers, now)
close_book(book)
local found = {}
for owner, load in pairs(book.rows) do
  if load.requests > 0 then
    found[#found + 1] = owner
    found[#found + 1] = load.requests
  end
end
return found
