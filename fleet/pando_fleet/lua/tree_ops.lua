-- The prefix tree of one replica: a sorted set of 8-byte chunk keys. A touch at t gives the chunk
-- at depth d the score t - d/1024 (exact in a double). Scores only grow and each touch covers the
-- whole path, so an ancestor's score is always above its descendants': the lowest score is a leaf.

local TREE_TTL_MS = 600000 -- renewed by touches and heartbeats
local TOUCH_BATCH = 1000 -- pairs of one ZADD: Lua's unpack has room for about 8,000 values

local function chunk_key(path, depth)
  return string.sub(path, 8 * depth - 7, 8 * depth)
end

-- Chunks of the path that the tree holds. Gallops from the root, because paths often part early and
-- a cut may have left chunks behind a gap, then searches between the last two steps.
local function match(tree, path)
  local chunks = #path / 8
  local held, missing = 0, 1
  while missing <= chunks and redis.call('ZSCORE', tree, chunk_key(path, missing)) do
    held, missing = missing, 2 * missing
  end
  missing = math.min(missing, chunks + 1)
  while missing - held > 1 do
    local middle = math.floor((held + missing) / 2)
    if redis.call('ZSCORE', tree, chunk_key(path, middle)) then
      held = middle
    else
      missing = middle
    end
  end
  return held
end

-- Marks the path as used now, and drops the oldest leaves above `capacity` chunks.
local function touch(tree, path, capacity, now)
  local chunks = math.min(#path / 8, capacity)
  for first = 1, chunks, TOUCH_BATCH do
    local last = math.min(first + TOUCH_BATCH - 1, chunks)
    local scored = {}
    for depth = first, last do
      scored[#scored + 1] = now - depth / 1024
      scored[#scored + 1] = chunk_key(path, depth)
    end
    redis.call('ZADD', tree, 'GT', unpack(scored))
  end
  local excess = redis.call('ZCARD', tree) - capacity
  if excess > 0 then
    redis.call('ZREMRANGEBYRANK', tree, 0, excess - 1)
  end
  redis.call('PEXPIRE', tree, TREE_TTL_MS)
end

-- Removes what lies behind the first `depth` chunks of the path.
local function cut(tree, path, depth)
  for first = depth + 1, #path / 8, TOUCH_BATCH do
    local last = math.min(first + TOUCH_BATCH - 1, #path / 8)
    local members = {}
    for chunk = first, last do
      members[#members + 1] = chunk_key(path, chunk)
    end
    redis.call('ZREM', tree, unpack(members))
  end
end
