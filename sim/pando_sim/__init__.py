"""The fleet simulator: Pando's placement, scheduling, caching and scaling code in virtual time.

Its packages are layers; each imports those below it (`pyproject.toml` holds them to it):
    settings.py              every setting of `pando sim`
    policies/, scaling/      who places requests, Pando and other routers; who changes the pool
    fleet/                   one run: routers, replicas, faults and checks; begin with simulate.py
    worker/                  a replica: the worker's scheduler around a model that takes time only
    report/, traces/, cost/  the run's page and files; what is asked; how long a step takes
    records.py, request.py, spec.py, timeline.py    plain data, the virtual clock
"""
