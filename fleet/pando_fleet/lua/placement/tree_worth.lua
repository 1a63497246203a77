local STRATA = 128 -- of older entries; neighbours are often of one prefix, so many places are sampled

local $names(WeighTree) = $arguments(WeighTree)
local held = redis.call('ZCARD', tree)

-- The members that the other tree lacks.
local function not_in(other, members)
  local left = {}
  for first = 1, #members, BATCH do
    local last = math.min(first + BATCH - 1, #members)
    local scores = redis.call('ZMSCORE', other, unpack(members, first, last))
    for i = first, last do
      if not scores[i - first + 1] then
        left[#left + 1] = members[i]
      end
    end
  end
  return left
end

-- The worth of ranks `first` to `last`; rank 0 is the newest.
local function worth(first, last)
  local rows = redis.call('ZREVRANGE', tree, first, last, 'WITHSCORES')
  local members, scores = {}, {}
  for i = 1, #rows, 2 do
    members[#members + 1] = rows[i]
    scores[rows[i]] = tonumber(rows[i + 1])
  end
  for i = 2, #KEYS do
    if #members > 0 then
      members = not_in(KEYS[i], members)
    end
  end
  local sum = 0
  for i = 1, #members do
    local touched = math.ceil(scores[members[i]] / DEPTHS) * BUCKET_MS
    sum = sum + 0.5 ^ (math.max(0, now - touched) / half_life_ms)
  end
  return sum
end

if held <= most then
  return string.format('%.6f', worth(0, -1))
end
-- The newest half of the sample is counted in full; a stretch of each stratum represents the rest.
local newest = math.floor(most / 2)
local total = worth(0, newest - 1)
local stretch = math.max(1, math.floor((most - newest) / STRATA))
local begins = newest
for i = 1, STRATA do
  local ends = newest + math.floor((held - newest) * i / STRATA)
  local size = ends - begins
  local looked = math.min(stretch, size)
  if looked > 0 then
    local first = begins + math.floor((size - looked) / 2)
    total = total + worth(first, first + looked - 1) * size / looked
  end
  begins = ends
end
return string.format('%.6f', total)
