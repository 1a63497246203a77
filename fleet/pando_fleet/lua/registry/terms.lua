-- What a ready replica reports to placement.
$reader(TERMS)
$reader(ADAPTERS)

-- The field of `adapters` with where the replica holds the adapter of this short key; of the list of
-- all that it holds, if the key is empty. No replica's name has a NUL.
local function place_field(replica, key)
  return replica .. '\0' .. key
end
