-- The process behind an incarnation has ended: who comes after it is another one, as fast as it was.
--
-- KEYS record; ARGV incarnation, '' for whichever it is.
if ARGV[1] == '' or redis.call('HGET', KEYS[1], 'incarnation') == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'incarnation')
end
