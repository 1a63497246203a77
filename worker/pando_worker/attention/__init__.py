"""Attention over the paged KV pool.

Read in this order:
    backend.py             the interface for models: one plan per batch, one call per layer
    kv_pool.py             the keys and values of all cached tokens
    paged_rows.py          a batch's rows as lists of pages
    scores.py              attention over contiguous keys
    torch_backend.py       with torch's operators: on the CPU, and the fallback elsewhere
    shared_prefixes.py     rows that begin with the same pages
    segments.py            rows cut into text and images whose tokens see each other
    flashinfer_backend.py  on CUDA, with flashinfer's kernels
    flashinfer_calls.py    calls flashinfer
    flashinfer_graphs.py   flashinfer in CUDA graphs

The CPU's kernels are in `cpu/attention.py`. Imports `batch` and `tensors`.
"""
