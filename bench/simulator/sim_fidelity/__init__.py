"""The simulator against reality: one small trace, a real fleet on this machine, and a simulated one
with a cost model that was measured on it.

Run: python -m bench.simulator.sim_fidelity --output DIR
"""
