local $names(Ended) = $arguments(Ended)
if incarnation == '' or redis.call('HGET', record, 'incarnation') == incarnation then
  redis.call('HDEL', record, 'incarnation')
end
