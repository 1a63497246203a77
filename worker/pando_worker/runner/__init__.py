"""Runs the scheduler's batches with torch.

Read in this order:
    model_runner.py  owns the weights and the KV pool
    loading.py       loads both
    encoder_runner.py  owns a text encoder, which has no KV pool
    precision.py     the type of weights and activations
    kv/              the pool's size on the device and in host memory
    kv_scales.py     the scales of keys and values in fp8
    adapters/        LoRA adapters in device memory and in host memory
    alignment.py     what alignment heads attend to
    image_embeddings.py  embeddings of images, from the vision tower
    tower_trial.py       whether the model's image processor fits that tower
    sampling/        turns logits into tokens
    cpu/             chooses kernels or torch on a CPU
    cuda/            chooses flashinfer or torch on a GPU; CUDA graphs
    step_memory.py   the largest steps, to measure their memory
    trial.py         batches that belong to no request
    threaded.py      makes a runner asynchronous with a thread

Imports models, attention, memory, `cpu` and `cuda`. Shares only `batch` and `pools` with the
scheduler.
"""
