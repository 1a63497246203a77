"""Which placement serves best where: traces, fleets and loads, each with every placement.

Run: python -m bench.placement_cells. A cell is a trace, a size of the fleet and of its caches, a
load and a number of routers; placements are simulated in it (`docs/simulator.md`).
"""
