"""Decoders of the transformers library over our paged pool, where there is no file for a family.

Read in this order:
    model.py      the model
    admission.py  which ones are tried
    probe.py      finds their attention layers
    interface.py  the function that they call for attention
    masks.py      what their masks let a token see
    rotary.py     rotary frequencies by the longest position
    head.py       the output head
    proof.py      before it serves, its own attention judges ours

Imports `attention`.
"""
