"""Attention over the paged KV pool.

Read in this order:
    backend.py             what a model needs: one plan a batch, one call a layer
    kv_pool.py             the keys and values of all cached tokens
    paged_rows.py          a batch's rows as lists of pages
    scores.py              attention over keys that lie one after the other
    torch_backend.py       with torch's operators: the CPU's, and everyone's fallback
    shared_prefixes.py     rows that begin with the same pages
    flashinfer_backend.py  on CUDA, with flashinfer's kernels
    flashinfer_calls.py    the border to flashinfer
    flashinfer_graphs.py   for CUDA graphs

The CPU's kernels are in `cpu/attention.py`. Imports `batch` and `tensors`.
"""
