"""LoRA adapters: what both the scheduler and the model know of them.

Read in this order:
    info.py         an adapter that was read and checked: its identity and its size
    reading.py      reads one in PEFT's form, and checks it against the layers of its base model
    peft_config.py  PEFT's `adapter_config.json`, and what of it is refused
    layout.py       where its numbers are in device memory
    errors.py       why an adapter cannot be used

Needs no torch. `runner/adapters/` puts adapters into device memory.
"""
