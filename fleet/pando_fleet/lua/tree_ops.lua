-- The prefix tree of one replica: a sorted set of 8-byte chunk keys. A touch at t gives the chunk
-- at depth d the score t - d/1024 (exact in a double). Scores only grow and each touch covers the
-- whole path, so an ancestor's score is always above its descendants': the lowest score is a leaf.

local TREE_TTL_MS = 600000 -- renewed by touches and heartbeats
local PROBES = 4 -- parts into which a round of a search cuts what is left
local TOUCH_BATCH = 1000 -- pairs of one ZADD: Lua's unpack has room for about 8,000 values

local function chunk_key(path, depth)
  return string.sub(path, 8 * depth - 7, 8 * depth)
end

local function probes_at(path, depths)
  local members = {}
  for i, depth in ipairs(depths) do
    members[i] = chunk_key(path, depth)
  end
  return { depths = depths, members = members }
end

-- Where a search begins: a gallop from the root, because paths often part early and a cut may have
-- left chunks behind a gap, and the place where another replica's share of this path ended.
local function first_probes(path, guess)
  local chunks = #path / 8
  local depths = {}
  local depth = 1
  while depth <= chunks do
    depths[#depths + 1] = depth
    depth = 2 * depth
  end
  if guess > 0 then
    depths[#depths + 1] = guess
  end
  if guess < chunks then
    depths[#depths + 1] = guess + 1
  end
  table.sort(depths)
  return probes_at(path, depths)
end

-- Chunks of the path that the tree holds, searched from `probes` on. A round looks at several
-- depths in one call, which costs hardly more than one: most replicas hold the same system prompt
-- and need one round, where a search by single calls needs twenty for a long path.
local function match(tree, path, probes)
  local held, missing = 0, #path / 8 + 1
  while missing - held > 1 do
    if not probes then
      local step = math.max(1, (missing - held) / PROBES)
      local depths = {}
      for depth = held + step, missing - 1, step do
        depths[#depths + 1] = math.floor(depth)
      end
      probes = probes_at(path, depths)
    end
    local scores = redis.call('ZMSCORE', tree, unpack(probes.members))
    for i, depth in ipairs(probes.depths) do
      if not scores[i] then
        missing = depth
        break
      end
      held = depth
    end
    probes = nil
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
