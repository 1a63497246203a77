"""A fleet in virtual time: routers, replicas and one real Redis, driven by one heap of events.

Read in this order:
    simulate.py  one policy over one trace
    arrivals.py  when a trace's requests arrive
    session_arrivals.py  when the calls of sessions arrive
    routing/     a simulated router around the real deciding core
    fleet.py     the replicas, and their heartbeats to Redis
    redis/       the run's own Valkey, and a line to it
    warming.py   performs the operator's marks
    control.py   what scalers and faults can observe and do
    fault.py     what happens to the fleet at a time
    sampling.py  samples the pool
    checks.py    invariants of every run

Imports worker, traces and report; `policies` and `scaling` import it.
"""
