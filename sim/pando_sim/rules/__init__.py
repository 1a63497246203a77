"""Rules by which routers choose a replica: Pando's own, and models of other routers' rules, so that
all can be compared on the same trace, capacity and cost model. `rules.py` lists them.

Each router of a run has a rule of its own: what its original keeps in a router's memory (trees,
counts of requests) is kept once a router here too, and known to no other.
"""

from pando_sim.rules.rules import RULES

__all__ = ["RULES"]
