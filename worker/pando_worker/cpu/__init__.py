"""The inner loops of a model step for CPUs: a small C++ library, built where a compiler is.

Read in this order:
    kernels.py    the library's functions
    library.py    builds or finds the library for this machine
    processor.py  what this machine's processor is
    build.py      builds the C++ in `native/`
    prebuilt.py   libraries for images without a compiler
    ops.py        a model's operations by these kernels
    attention.py  attention straight from the paged pool
    search.py     the largest logit of each row

Imports `attention` and the models' operations; the runner chooses between it and torch.
"""
