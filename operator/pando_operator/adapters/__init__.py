"""Which LoRA adapters to load on which replica; pure.

Read in this order:
    replicas.py  what a plan knows of a replica
    calls.py     calls to replicas, and how each went
    progress.py  which replicas have an adapter as the spec says
    plan.py      the calls that are due, and the replicas that must wait for adapters
    report.py    each adapter's line in the status

Imports `resource`; the controller makes the calls.
"""
