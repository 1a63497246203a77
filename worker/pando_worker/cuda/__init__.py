"""Running a model on an NVIDIA GPU.

    device.py   which GPU a rank has, and its free memory
    ops.py      a model's operations on flashinfer's kernels
    expert_product.py  the products of experts as a Triton kernel, where torch has no kernel
    lora.py     what adapters add to linear layers
    nucleus.py  top-p without sorting

Imports `attention` and the models' operations.
"""
