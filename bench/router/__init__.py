"""Measures the router and what it asks Redis.

    data_path.py        the data path beside that of peers: CPU, latency, streams
    router_versions.py  the same of several checkouts, in turns
    recording_cost.py   the same of a router that records
    recording_instructions.py    its instructions, with and without recording
    placement.py        Redis's CPU time and the answer's time of a placement
    adapter_placements.py    the same of requests with LoRA adapters
    session_placements.py    Redis's instructions for a placement with the bound on sessions
    bound_cost.py       router's and Valkey's CPU time of a request with that bound
    counting.py         counts a process's instructions, for the two above that show them
    own_valkey.py       a Valkey on a port of its own, for all others
    tree_memory.py      Redis's memory for each chunk of a tree
    observability.py    CPU time of logs, traces and metrics
    routing/            routers, replicas and loads of the first two
    with_trace/         how a tree should be corrected, on a recorded trace

Imports the router and `pando_fleet`.
"""
