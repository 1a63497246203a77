"""The fleet's shared state in Redis: replica registry, prefix tree, placement and leases.

Read in this order:
    redis/       connection, keys, scripts; every error raised here is a `FleetError`
    registry/    heartbeats, and which replicas are alive
    records/     everything else in Redis, one file per kind
    canonical/   a prompt's bytes
    images/      the images of prompts: which one, how large, how many tokens
    placement/   where a prompt is placed, and the lease from then on
    http/        the HTTP server of both, and what clients see of it: errors, request ids
    traces.py    spans of requests
    choices.py   registries that settings choose from
    patience.py  waits with a time limit
    guard.py     ends processes whose parent died
    free_memory.py   what glibc does with freed memory: gives it back, or keeps it for an engine
    current.py   a value that a reload of the settings replaces
    strict_yaml.py   YAML in which no name occurs twice
    misread.py   what is wrong in JSON or YAML, in words
    distribution.py  Pando's version, as pip installed it; how to install more

The Lua scripts are in `lua/`, in folders named after the packages that call them. `fleet/README.md`
lists the keys and the formula. Imports no other part. This `__init__` imports nothing, so that a
process without Redis, such as the worker's HTTP process at its start, does not load redis-py.
"""
