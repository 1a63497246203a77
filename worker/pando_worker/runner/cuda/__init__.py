"""Chooses the code that runs a step on a GPU.

Read in this order:
    cuda_path.py   chooses flashinfer's kernels or torch's
    cuda_graph.py  runs decode steps as CUDA graphs

`pando_worker.attention` and `pando_worker.cuda` call the kernels.
"""
