"""The fleet simulator: Pando's placement, scheduling, caching and scaling code in virtual time.

The packages are layers; each imports those below it (`pyproject.toml` enforces it):
    settings.py              every setting of `pando sim`
    tuning/                  searches a pool's settings on a trace
    policies/, scaling/      choose replicas, like Pando and other routers; change the pool's size
    fleet/                   one run: routers, replicas, faults and checks; begin with simulate.py
    worker/                  a replica: the worker's scheduler around a model that only takes time
    proof/                   a recorded period beside its replay
    report/, traces/, cost/  the report's page and files; requests; how long a step takes
    session.py               an agent's session, and how many of them run at once
    session_rules.py         rules for sessions that a comparison plays
    adapters.py, records.py, request.py, spec.py    plain data
    timeline.py              the virtual clock
    day_clock.py             the time of day, which schedules go by
"""
