-- Milliseconds now: the time that a simulation passed, otherwise Redis's own, so that clients' clocks
-- never matter.
local function now_ms(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
