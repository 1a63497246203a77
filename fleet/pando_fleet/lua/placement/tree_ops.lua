-- The prefix tree of one replica: a sorted set of chunk keys. Time is counted in buckets of a second:
-- a touch in bucket b gives the chunk at depth d the score b * DEPTHS - d. Scores only grow, and each
-- touch covers the whole path, so an ancestor's score is always above its descendants': the lowest
-- score is a leaf, and scores fall along a path. So both questions, "how much of this path is held?"
-- and "how much of it was already touched in this bucket?", are one search for a border.

local BUCKET_MS = 1000 -- far less than the time to compute a KV pool again
local DEPTHS = $MAX_CHUNKS -- scores per bucket
local EVER = 0 -- no score is below this
local PARTS = 4 -- parts into which one round of a search divides the rest
local BATCH = 1000 -- members per call: Lua's unpack has room for about 8,000 values

local function chunk_key(path, depth)
  return string.sub(path, $KEY_BYTES * depth - ($KEY_BYTES - 1), $KEY_BYTES * depth)
end

-- The next depths to look up, between `low`, which reaches the floor, and `high`, which does not. One
-- call looks up several, which costs hardly more than one.
local function depths_between(low, high, round)
  local depths, count = {}, 0
  if round == 1 then -- gallop, because paths often diverge early
    local step = 1
    while low + step < high do
      count = count + 1
      depths[count] = low + step
      step = 2 * step
    end
  else
    local step = math.max(1, (high - low) / PARTS)
    for depth = low + step, high - 1, step do
      count = count + 1
      depths[count] = math.floor(depth)
    end
  end
  return depths
end

local function reaches(score, floor)
  return score and (floor == EVER or tonumber(score) >= floor)
end

-- Looks up `guess` and the next chunk, which usually suffices, so it avoids tables. Returns the new
-- `low` and `high`. After the path's end comes the empty key, which no tree has.
local function look_at_guess(tree, path, floor, guess, low, high)
  local behind = chunk_key(path, guess + 1)
  if guess == low then
    if reaches(redis.call('ZSCORE', tree, behind), floor) then
      return guess + 1, high
    end
    return guess, guess + 1
  end
  local scores = redis.call('ZMSCORE', tree, chunk_key(path, guess), behind)
  if not reaches(scores[1], floor) then
    return low, guess
  elseif reaches(scores[2], floor) then
    return guess + 1, high
  end
  return guess, guess + 1
end

-- Chunks of the path, from its root, whose scores reach `floor`; the first `low` are known to.
-- `guess`, where another search of this path ended, may be nil.
local function search(tree, path, floor, guess, low)
  local high, round = #path / $KEY_BYTES + 1, 0
  low = low or 0
  if guess then
    low, high = look_at_guess(tree, path, floor, math.max(guess, low), low, high)
  end
  while high - low > 1 do
    round = round + 1
    local depths, members = depths_between(low, high, round), {}
    for i = 1, #depths do
      members[i] = chunk_key(path, depths[i])
    end
    local scores = redis.call('ZMSCORE', tree, unpack(members))
    for i = 1, #depths do
      if not reaches(scores[i], floor) then
        high = depths[i]
        break
      end
      low = depths[i]
    end
  end
  return low
end

-- When, in ms, the bucket of the least recently used leaf began; 0 for an empty tree, and for a key of
-- the wrong type: that must not fail a heartbeat, and a match reports it.
local function oldest_touch(tree)
  local score = redis.pcall('ZRANGE', tree, 0, 0, 'WITHSCORES')[2]
  return score and (math.floor(tonumber(score) / DEPTHS) + 1) * BUCKET_MS or 0
end

-- ZADD's arguments to score the path's chunks `first` to `last`. Splits the path by one call, and
-- inserts scores from the end: three times as fast as splitting chunk by chunk.
local function scored_chunks(path, first, last, bucket)
  local count, above = last - first + 1, bucket * DEPTHS - first + 1
  local at = $KEY_BYTES * (first - 1) + 1
  local scored = { struct.unpack(string.rep('c$KEY_BYTES', count), path, at) }
  for i = count, 1, -1 do
    scored[2 * i] = scored[i]
    scored[2 * i - 1] = above - i
  end
  return scored
end

-- Removes chunks that no tenant has any more. `popped` alternates member and score.
local function remove_popped(tree, popped)
  for first = 1, #popped, 2 * BATCH do
    local members = {}
    for i = first, math.min(first + 2 * BATCH - 2, #popped), 2 do
      members[#members + 1] = popped[i]
    end
    redis.call('ZREM', tree, unpack(members))
  end
end

-- Marks the path as used now, and drops the oldest leaves above `capacity` chunks. A `ledger` is the
-- set of what one tenant has in this tree, with the same scores: if it is given, the tenant's own
-- oldest leaves are dropped above `share` chunks, and the ledger drops what the tree has lost. `guess`
-- is how much of the path was held lately.
local function touch(tree, path, now, guess, capacity, ledger, share)
  local bucket = math.floor(now / BUCKET_MS)
  local chunks = math.min(#path / $KEY_BYTES, capacity, DEPTHS)
  if ledger then
    chunks = math.min(chunks, share)
  end
  local fresh = search(tree, path, (bucket - 1) * DEPTHS, guess)
  for first = fresh + 1, chunks, BATCH do
    local scored = scored_chunks(path, first, math.min(first + BATCH - 1, chunks), bucket)
    redis.call('ZADD', tree, 'GT', unpack(scored))
    if ledger then
      redis.call('ZADD', ledger, 'GT', unpack(scored))
    end
  end
  if fresh < chunks then
    redis.call('PEXPIRE', tree, $TREE_TTL_MS)
  end
  if ledger then
    local excess = redis.call('ZCARD', ledger) - share
    if excess > 0 then
      remove_popped(tree, redis.call('ZPOPMIN', ledger, excess))
    end
    redis.call('PEXPIRE', ledger, $TREE_TTL_MS)
  end
  local excess = redis.call('ZCARD', tree) - capacity
  if excess > 0 then
    redis.call('ZREMRANGEBYRANK', tree, 0, excess - 1)
  end
  local oldest = ledger and redis.call('ZRANGE', tree, 0, 0, 'WITHSCORES')[2]
  if oldest then
    redis.call('ZREMRANGEBYSCORE', ledger, '-inf', '(' .. oldest)
  end
end

-- Removes everything after the first `depth` chunks of the path.
local function cut(tree, path, depth)
  for first = depth + 1, #path / $KEY_BYTES, BATCH do
    local members = {}
    for chunk = first, math.min(first + BATCH - 1, #path / $KEY_BYTES) do
      members[#members + 1] = chunk_key(path, chunk)
    end
    redis.call('ZREM', tree, unpack(members))
  end
end
