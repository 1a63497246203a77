local $names(Leave) = $arguments(Leave)
local is_json, beat = pcall(cjson.decode, redis.call('HGET', beats, replica) or '')
if is_json and type(beat) == 'table' and beat.incarnation == incarnation then
  redis.call('ZREM', replicas, replica)
  redis.call('HDEL', beats, replica)
  redis.call('HDEL', terms, replica)
  forget_adapters(adapters, replica)
end
redis.call('UNLINK', tree)
