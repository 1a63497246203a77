"""A fleet in virtual time: routers, replicas and one real Redis, driven by one heap of events.

Read in this order:
    simulate.py  one policy over one trace
    arrivals.py  when requests come
    routing/     a simulated router around the real deciding core
    fleet.py     the replicas, and what they tell Redis
    redis/       the run's own Valkey, and a line to it
    warming.py   what a router does for the operator's marks
    control.py   what scalers and faults see and do
    sampling.py  the pool at one moment
    checks.py    what must hold in every run

Imports worker, traces and report; `policies` and `scaling` import it.
"""
