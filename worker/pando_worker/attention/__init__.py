"""Attention: over the paged KV pool, and without one.

Read in this order:
    whole.py          among all tokens of a text, without a pool: for text encoders
    backend.py        the interface for models: one plan per batch, one call per layer
    kv_pool.py        the keys and values of all cached tokens
    paged_rows.py     a batch's rows as lists of pages
    staging.py        arrays on their way to the device
    device_pages.py   page tables on the device, kept by differences
    scores.py         attention over contiguous keys
    torch_backend.py  with torch's operators: on the CPU, and the fallback elsewhere
    torch_sources.py  the same, to what encoders made
    flashinfer/       on CUDA, with flashinfer's kernels

The CPU's kernels are in `cpu/attention.py`. Imports `batch`, `tensors` and `user_cache`.
"""
