"""The border to Redis: connections, errors, keys, scripts, and what is sent over the wire.

Read in this order:
    client.py       makes a client from a URL; defines every error
    url_form.py     checks what a URL begins with
    url.py          checks a URL in settings
    connections.py  connections that abandon a server that is not a master
    refusals.py     what Redis's error replies mean
    keys.py         the names of all keys
    scripts.py      Lua scripts through redis-py
    layout/         what Lua and Python exchange
    wire/           calls without redis-py, for hot paths
    misfits.py      values from other writers that this process cannot use
    memory.py       reads the sizes of Redis's memory

Knows nothing of replicas or leases.
"""
