"""How weights become integers in groups (`models/grouped.py`): one file a scheme.

Read in this order:
    scheme.py  the interface, and which scheme a setting means
    int8.py    any weight: groups of 32, with a scale
    int4.py    any weight: groups of 32, with a scale and a minimum
    stored.py  GGUF tensors as they are
    blocks.py  their blocks, type by type

Imports the rest of `loading` and `models/grouped.py`; `loading/quantize.py` and the loader import
it.
"""
