local $names(ForgetPool) = $arguments(ForgetPool)
local book = open_book(leases, parts, loads)
end_expired_leases(book, now)
mend_book(book, routers, now)
close_book(book)
if redis.call('ZCARD', leases) > 0 then
  return 0
end
redis.call('DEL', routers, queues)
return 1
