"""Measures by simulation, and measures the simulator.

    sim_fidelity/       a simulated fleet against a real one on this machine
    sim_growth.py       how the costs of a long simulation grow
    published_costs.py  fits cost models of GPUs to published throughput
    placement_cells/    which placement serves best in which situation
    scaling_days/       what scalers pay over a day
    side_by_side.py     runs independent runs on all cores

Imports the simulator.
"""
