"""Where a prompt goes, decided and reserved in one round trip, and the lease from then on.

Read in this order:
    prefix.py    a prompt as keys of chunks
    tree.py      the prefix tree
    placer.py    `Placer`: places, over a `Wire`
    lease.py     a placement from its making to its end
    settling.py  writes that no answer waits for
    keeper.py    renews leases, and ends those of dead routers: lease expiry
    worth.py     what a replica's cache is worth

The scripts are in `lua/`: `place.lua` decides, `lease_ops.lua` has what expires. Imports
registry and records.
"""
