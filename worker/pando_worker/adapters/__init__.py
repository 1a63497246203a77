"""LoRA adapters: PEFT's files, checked, and what scheduler and model know of an adapter.

Read in this order:
    info.py           an adapter that was read and checked: its identity and its size
    errors.py         why an adapter cannot be used
    layout.py         which matrices an adapter may have, and where they are in device memory
    adapter.py        the matrices of an adapter, and its identity
    files.py          opens and decodes files that nobody vouches for
    peft_config.py    adapter_config.json, and which kinds of adapters are refused
    tensor_file.py    the tensors of a file that nobody vouches for
    file_modules.py   these by module
    fused_experts.py  those of experts whose matrices are one parameter
    reading.py        both files together, checked against a model's layers

Needs no torch. `runner/adapters/` puts adapters into host and device memory.
"""
