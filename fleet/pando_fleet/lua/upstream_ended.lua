-- The process behind an incarnation has ended: who comes after it is another one, as fast as it was.
--
-- KEYS record; ARGV incarnation.
if redis.call('HGET', KEYS[1], 'incarnation') == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'incarnation')
end
