-- Removes a replica, unless a newer incarnation has taken its name. Its leases end with their
-- requests.
--
-- KEYS replicas, beats, terms, tree; ARGV replica, incarnation.
local is_json, beat = pcall(cjson.decode, redis.call('HGET', KEYS[2], ARGV[1]) or '')
if is_json and type(beat) == 'table' and beat.incarnation == ARGV[2] then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
  redis.call('HDEL', KEYS[3], ARGV[1])
end
redis.call('UNLINK', KEYS[4])
