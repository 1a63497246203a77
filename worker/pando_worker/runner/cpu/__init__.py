"""Chooses the code that runs a step on a CPU.

Read in this order:
    quantization.py  how weights are quantized
    cpu_path.py      chooses kernels or torch by a race
    race.py          the race: products by shape, and attention
    waits.py         whether other programs disturbed it
    kept_races.py    outcomes in the user's cache
    cpu_tape.py      records decode steps and replays them
    packing.py       packs an encoder's matrices
    text_parts.py    runs parts of a step's texts beside each other

The kernels are in `pando_worker.cpu`.
"""
