"""LoRA adapters in device memory and in host memory.

Read in this order:
    sites.py       which layers of a model take adapters, and where in a page
    memory.py      the device memory that the settings ask for
    packing.py     an adapter in the form of device memory
    recipe.py      the same from the file of one that was checked before
    host_cache.py  packed adapters in host memory, bounded
    base.py        what a check must know of the base model
    pace.py        how fast adapters may be checked while steps run
    loader.py      reads adapters and copies them into slots, in the background
    step.py        which tokens of a step run with which slot

`adapters/` reads PEFT's files; `models/lora/linear.py` has the memory and what layers do with it.
"""
