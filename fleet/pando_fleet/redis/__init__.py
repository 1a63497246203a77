"""The border to Redis: connections, errors, keys, scripts, and what goes over the wire.

Read in this order:
    client.py       a client from a URL; every error that leaves
    connections.py  connections that leave a server that is no master
    refusals.py     what Redis's error replies say of the server
    keys.py         names of every key
    scripts.py      Lua scripts through redis-py
    layout/         what Lua and Python exchange
    wire/           calls without redis-py, for hot paths
    misfits.py      what others wrote and this process cannot use
    memory.py       what Redis says of its memory

Knows nothing of replicas or leases.
"""
