"""Policies by which routers choose a replica: Pando's own, and models of other routers' policies,
so that all can be compared on the same trace, capacity and cost model.

Read in this order:
    registry.py          all policies by name
    pando.py             the router's own policies
    smg.py, llm_d.py, dynamo.py, production_stack.py, vllm.py    models of other routers' policies
    local.py             a policy that leases nothing
    sent.py, polled.py   what such a router remembers, and what it asks engines

Each router of a run has a policy of its own: what its original keeps in a router's memory (trees,
counts of requests) is kept once a router here too, and known to no other.

Imports fleet (`pando_sim.fleet`) and the router's policies.
"""

from pando_sim.policies.registry import POLICIES

__all__ = ["POLICIES"]
