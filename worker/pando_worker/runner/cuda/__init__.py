"""Which code runs a step on a GPU.

Read in this order:
    cuda_path.py   flashinfer's kernels or torch's
    cuda_graph.py  decode steps as CUDA graphs

The kernels' calls are in `pando_worker.attention` and `pando_worker.cuda`.
"""
