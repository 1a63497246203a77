"""Chooses the code that runs a step on a GPU.

Read in this order:
    cuda_path.py        chooses flashinfer's kernels or torch's
    capture.py          what is launched, as CUDA graphs
    graph_inputs.py     the memory that graphs read
    cuda_graph.py       runs decode steps as graphs
    piecewise_graph.py  runs other small steps as graphs of all but attention
    graphs.py           captures all of them at the start
    prebuild.py         compiles flashinfer's kernels while an image is built

`pando_worker.attention` and `pando_worker.cuda` call the kernels.
"""
