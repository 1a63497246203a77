"""Running a model on an NVIDIA GPU.

    device.py   which GPU a rank has, and its free memory
    toolchain.py  what the machine lacks to compile kernels
    prebuilt.py  which of flashinfer's kernels its image has compiled
    ops.py      a model's operations on flashinfer's kernels
    fused_experts.py  a mixture of experts, from its tokens to their sums
    expert_product.py  the products of experts as a Triton kernel, where torch has no kernel
    sum_norm.py  sums over ranks with the norm behind them, by flashinfer
    rank_exchange.py  how ranks prepare that, so that all fail if one does
    mxfp4.py    whether experts stay in 4-bit floats
    mxfp4_tile.py  matrices of them, decoded as a kernel reads them
    lora.py     what adapters add to linear layers
    fp8.py      products with matrices that stay in fp8
    fp8_quantize.py  activations in fp8, for these, and queries
    turn_heads.py  norms and rotation of heads, with keys and values put into the pool
    kv_store.py  new keys and values put into the pool, in its dtype
    page_lists.py  the pages of a step, from tables on the device
    sampling.py  the next token of each row, without sorting
    nucleus.py  top-p without sorting, by flashinfer

Imports `attention` and the models' operations.
"""
