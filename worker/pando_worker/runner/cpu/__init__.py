"""Which code runs a step on a CPU.

Read in this order:
    quantization.py  which weights are integers
    cpu_path.py      kernels or torch, decided by a race
    race.py          the race: products by shape, and attention
    kept_races.py    outcomes in the user's cache
    cpu_tape.py      decode steps recorded and played back

The kernels are in `pando_worker.cpu`.
"""
