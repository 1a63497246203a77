-- Writes what no answer waited for: many operations of many requests, in the order they were queued.
--
-- KEYS leases, parts, loads; ARGV now or '', tree key prefix, ledger key prefix, then operations:
--   touch, owner, path, chunks held when placed, capacity in chunks, tenant or '', its share in chunks
--   cut, owner, path, depth in chunks, tenant or ''
--   prefilled, lease
--   renew, lease, ms that it lasts from now
--   release, lease
local now, tree_prefix, ledger_prefix = now_ms(ARGV[1]), ARGV[2], ARGV[3]
local book = open_book(1)
local renewed_ms = 0

local function ledger_of(tenant, owner)
  return tenant ~= '' and ledger_prefix .. tenant .. ':' .. owner or nil
end

local i = 4
while i <= #ARGV do
  local kind, name = ARGV[i], ARGV[i + 1]
  if kind == 'touch' then
    local path, guess, capacity = ARGV[i + 2], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
    local ledger, share = ledger_of(ARGV[i + 5], name), tonumber(ARGV[i + 6])
    touch(tree_prefix .. name, path, now, guess, capacity, ledger, share)
    i = i + 7
  elseif kind == 'cut' then
    local path, depth, ledger = ARGV[i + 2], tonumber(ARGV[i + 3]), ledger_of(ARGV[i + 4], name)
    cut(tree_prefix .. name, path, depth)
    if ledger then
      cut(ledger, path, depth)
    end
    i = i + 5
  elseif kind == 'prefilled' then
    end_prefill(book, name)
    i = i + 2
  elseif kind == 'renew' then
    local lasts_ms = tonumber(ARGV[i + 2])
    redis.call('ZADD', book.leases, 'XX', now + lasts_ms, name)
    renewed_ms = math.max(renewed_ms, lasts_ms)
    i = i + 3
  else
    end_lease(book, name)
    i = i + 2
  end
end
close_book(book)
if renewed_ms > 0 then
  keep_book(book, renewed_ms)
end
