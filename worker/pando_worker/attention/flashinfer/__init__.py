"""Attention on CUDA, with flashinfer's kernels.

Read in this order:
    library.py          the parts of flashinfer that are used
    kind.py             which layers its kernels can compute, and with which
    calls.py            calls a kernel: planned once per batch, run once per layer
    latent.py           the same for latents
    calls_of_kind.py    the calls of one kind of layer
    kernel_choice.py    FlashAttention 2 or 3, by what rows have
    fp8_queries.py      queries in fp8, which the latter needs beside keys in fp8
    shared_prefixes.py  rows that begin with the same pages
    segments.py         rows cut into text and images whose tokens see each other
    backend.py          the attention backend of all these
    graphs.py           in CUDA graphs
    pieces.py           between CUDA graphs of all else
"""
