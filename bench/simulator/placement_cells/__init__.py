"""Which placement serves best in which situation: traces, fleets and loads, each with every policy.

Run: python -m bench.simulator.placement_cells. A cell is a trace, a size of the fleet and of its
caches, a load and a number of routers; every policy is simulated in it (`docs/simulator.md`).
"""
