local $names(Replicas) = $arguments(Replicas)
pcall(forget_silent, replicas, beats, terms, adapters, now) -- a Redis that refuses writes can still be read
local heard = redis.call('ZRANGEBYSCORE', replicas, '(' .. now - $RETENTION_MS, '+inf', 'WITHSCORES')
local found = {}
for i = 1, #heard, 2 do
  local name = heard[i]
  local beat, row = redis.call('HGET', beats, name), redis.call('HGET', terms, name)
  if beat then
    local is_whole, trouble = true, nil
    if row then
      is_whole, trouble = pcall(unpack_terms, row)
    end
    local held = is_whole and redis.call('HGET', adapters, name)
    if held then
      is_whole, trouble = pcall(unpack_adapters, held)
    end
    found[#found + 1] = {
      name, math.max(0, now - heard[i + 1]), beat, withheld(marks, name, now),
      is_whole and '' or trouble,
    }
  end
end
return found
