"""The engine: an HTTP process, a scheduler process, and its further ranks.

Read in this order:
    serve.py       the command: starts both processes
    server/        the HTTP process: API, tokenizer, text
    messages.py    what the two processes say to each other
    engine/        the scheduler process
    scheduler/     which requests run next; numpy only
    memory/        who owns which KV page; the radix cache
    batch.py       one step as plain arrays: the border between scheduler and model
    pools.py       what a loaded model's memory has to give out
    runner/        loads the model, runs batches, draws tokens
    models/        config, weights and layers of each family
    attention/     the backends and the KV pool's tensors
    cpu/, cuda/    kernels
    ranks/         tensor parallelism
    grammar/       constrained output
    tokenizer/     loads a tokenizer; tokens to text
    tensors/       copies to a device and back
    heartbeats.py, rates.py, stacks.py, cores.py, settings.py

docs/architecture.md has the layers. Imports fleet.
"""
