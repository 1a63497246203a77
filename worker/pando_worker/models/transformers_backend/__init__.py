"""Runs decoders of the transformers library over our paged pool, for families without code here.

Read in this order:
    model.py      the model
    known.py      which architectures the library knows, without importing it
    admission.py  which models are tried
    probe.py      finds a model's attention layers
    interface.py  the function that models call for attention
    masks.py      which tokens a model's mask allows
    rotary.py     rotary frequencies for the longest position
    head.py       the output head
    proof.py      compares our attention with the model's own before it serves
    tower.py      the vision part of a model that sees

Imports `attention`.
"""
