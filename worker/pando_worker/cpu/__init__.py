"""The inner loops of a model step on CPUs: a small C++ library, built if there is a compiler.

Read in this order:
    kernels.py    the library's functions
    library.py    builds or finds the library for this machine
    processor.py  describes this machine's processor
    build.py      builds the C++ in `native/`
    prebuilt.py   libraries for images without a compiler
    ops.py        a model's operations with these kernels
    attention.py  attention that reads the paged pool directly
    sampling.py   the largest logit of each row, their sums, and masks: the sampler's operations

Imports `attention` and the models' operations; the runner chooses between it and torch.
"""
