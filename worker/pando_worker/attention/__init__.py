"""Attention: over the paged KV pool, and without one.

Read in this order:
    whole.py               among all tokens of a text, without a pool: for text encoders
    backend.py             the interface for models: one plan per batch, one call per layer
    kv_pool.py             the keys and values of all cached tokens
    paged_rows.py          a batch's rows as lists of pages
    staging.py             arrays on their way to the device
    device_pages.py        page tables on the device, kept by differences
    scores.py              attention over contiguous keys
    torch_backend.py       with torch's operators: on the CPU, and the fallback elsewhere
    torch_sources.py       the same, to what encoders made
    kernel_choice.py       FlashAttention 2 or 3, by what rows have
    fp8_queries.py         queries in fp8, which the latter needs beside keys in fp8
    shared_prefixes.py     rows that begin with the same pages
    segments.py            rows cut into text and images whose tokens see each other
    flashinfer_backend.py  on CUDA, with flashinfer's kernels
    flashinfer_calls.py    calls flashinfer
    flashinfer_latent.py   its kernels for latents
    flashinfer_kinds.py    the calls of one kind of layer
    flashinfer_graphs.py   flashinfer in CUDA graphs
    flashinfer_pieces.py   flashinfer between CUDA graphs of all else

The CPU's kernels are in `cpu/attention.py`. Imports `batch`, `tensors` and `user_cache`.
"""
