"""The engine: an HTTP process, a scheduler process, and its further ranks.

Read in this order:
    serve.py       the command: starts both processes
    prepare.py     does the work of a first start during the install
    server/        the HTTP process: API, tokenizer, text
    messages.py    the messages between the two processes
    stats.py       what the scheduler process counts and measures
    wire.py        how the one's commands travel
    engine/        the scheduler process
    scheduler/     chooses the requests of each step; numpy only
    memory/        who owns each KV page; the radix cache
    adapters/      LoRA adapters, as scheduler and model know them
    batch.py       one step as plain arrays: the interface between scheduler and model
    pools.py       the sizes of a loaded model's pools
    runner/        loads the model, runs batches, samples tokens
    models/        config, weights and layers of each family
    attention/     the attention backends, and the KV pool's tensors
    cpu/, cuda/    kernels
    ranks/         tensor parallelism
    grammar/       constrained output
    tokenizer/     loads a tokenizer; turns tokens into text
    policies/      which waiting request runs next, which cached prefix is evicted first
    parsers/       splits an output's text into reasoning, content and tool calls
    tensors/       copies to a device and back
    vision/        images and videos of requests
    audio/         speech of requests: features, windows, words
    reading/       the processes that decode clients' files
    settings/      flags, variables and the YAML file
    heartbeats.py, progress.py, rates.py, stacks.py, parent.py, cores.py
    host_memory.py, user_cache.py

docs/architecture.md has the layers. Imports fleet.
"""
