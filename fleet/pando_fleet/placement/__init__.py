"""Chooses and reserves a replica for a prompt in one round trip, and manages the lease.

Read in this order:
    prefix.py    a prompt as keys of chunks
    tree.py      the prefix tree
    placer.py    `Placer`: places, over a `Wire`
    lease.py     a placement from its reservation to its end
    settling.py  writes that nobody waits for
    keeper.py    renews leases, and ends those of dead routers
    worth.py     what a replica's cache is worth

The scripts are in `lua/placement/`: `place.lua` decides, `lease_ops.lua` stores and expires leases,
`router_beat.lua` and `router_reap.lua` find dead routers and end theirs. Imports registry and
records.
"""
