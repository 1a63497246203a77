-- Milliseconds now: what a simulation gave, or else Redis's own time, so that no client's clock
-- counts.
local function now_ms(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
