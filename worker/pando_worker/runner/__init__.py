"""Runs the scheduler's batches with torch.

Read in this order:
    model_runner.py   owns the weights and the KV pool
    loading.py        loads both
    kv_budget.py      how many tokens the pool can hold
    pool_plan.py      the same, before the weights are read
    threaded.py       a runner made asynchronous by a thread
    step.py           from a step's logits to its result
    sampler.py        draws tokens
    edits.py          biases, penalties, masks
    logprobs.py       log-probabilities
    pooling.py        hidden states for embeddings
    future_tokens.py  the last token of every running request
    host_pool.py      the host's part of the KV cache
    host_pages.py     copies between it and the device
    cpu_path.py       kernels or torch on a CPU, decided by a race
    cpu_tape.py       decode steps recorded and played back
    cuda_path.py      flashinfer or torch on CUDA
    cuda_graph.py     decode steps as CUDA graphs
    trial.py          batches that are no request's

Imports models, attention, memory, `cpu` and `cuda`; knows the scheduler by `batch` and `pools`
alone.
"""
