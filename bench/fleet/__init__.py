"""Measures a whole fleet, or any server, from outside.

    serve.py       load on an OpenAI endpoint, and what its clients saw (docs/benchmarking.md)
    start.py       from `pando up` to its ready line
    mistakes.py    from a mistake at the command line to what is said of it
    hostile_table.py  memory after hostile requests
    hostile_floods.py  memory after floods of unfinished ones
    large_bodies.py  how long event loops stand still while a large body is read
    fleet_cost.py  one worker alone, behind a router, and two of them
    tuning_walk.py  from a cluster's traffic, through `pando tune`, to the patch of its pool
    agents/        agents' sessions, without and with the bound on them
    serving/       clients, workloads, arrivals and statistics of these

Starts the parts as processes, but for large_bodies.py.
"""
