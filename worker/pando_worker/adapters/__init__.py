"""LoRA adapters: what both the scheduler and the model know of them.

Read in this order:
    info.py     an adapter that was read and checked: its identity and its size
    errors.py   why an adapter cannot be used

Needs no torch. `runner/adapters/` reads adapters and puts them into device memory.
"""
