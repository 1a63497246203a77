"""Runs the scheduler's batches with torch.

Read in this order:
    model_runner.py  owns the weights and the KV pool
    loading.py       loads both
    kv/              how large the pool is, on the device and in host memory
    sampling/        from logits to tokens
    cpu/             kernels or torch on a CPU
    cuda/            flashinfer or torch on a GPU, CUDA graphs
    trial.py         batches that are no request's
    threaded.py      a runner made asynchronous by a thread

Imports models, attention, memory, `cpu` and `cuda`; knows the scheduler by `batch` and `pools`
alone.
"""
