"""Measures by simulation, and measures the simulator.

    sim_fidelity/       a simulated fleet against a real one on this machine
    sim_growth.py       how the costs of a long simulation grow
    published_costs.py  fits cost models of GPUs to published throughput
    placement_cells/    which placement serves best in which situation
    slow_requests.py    why the slowest requests waited, and where hits were lost
    agent_sessions/     more agents' sessions than a fleet's memory holds
    gpu_sharing.py      two pools on one set of GPUs, against fixed halves
    scaling_days/       what scalers pay over a day
    side_by_side.py     runs independent runs on all cores

Imports the simulator.
"""
