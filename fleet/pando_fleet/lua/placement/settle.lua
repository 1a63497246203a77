local $names(Settle) = $arguments(Settle)
local is_full = is_memory_full(leases)
local book = open_book(leases, parts, loads)
local unknown = nil

local function ledger_of(tenant, owner)
  return tenant ~= '' and ledger_prefix .. tenant .. ':' .. owner or nil
end

local i = $length(Settle) + 1
while i <= #ARGV and not unknown do
  local operation = ARGV[i]
  i = i + 1
  if operation == $operation(Touch) then
    local $names(Touch) = $arguments(Touch, i)
    local tree = tree_prefix .. owner
    if is_full then
      capacity = math.min(capacity, redis.call('ZCARD', tree)) -- replaces its coldest leaves
    end
    touch(tree, path, now, guess, capacity, ledger_of(tenant, owner), share)
    i = i + $length(Touch)
  elseif operation == $operation(Cut) then
    local $names(Cut) = $arguments(Cut, i)
    local ledger = ledger_of(tenant, owner)
    cut(tree_prefix .. owner, path, depth)
    if ledger then
      cut(ledger, path, depth)
    end
    i = i + $length(Cut)
  elseif operation == $operation(Prefilled) then
    local $names(Prefilled) = $arguments(Prefilled, i)
    end_prefill(book, lease)
    i = i + $length(Prefilled)
  elseif operation == $operation(Renew) then
    local $names(Renew) = $arguments(Renew, i)
    renew_lease(book, lease, now + lasts_ms, part)
    i = i + $length(Renew)
  elseif operation == $operation(Release) then
    local $names(Release) = $arguments(Release, i)
    end_lease(book, lease)
    i = i + $length(Release)
  else
    unknown = operation
  end
end
close_book(book)
-- Operations before the unknown one are written, later ones are not: its length is unknown.
return unknown and redis.error_reply('unknown operation: ' .. unknown)
