"""Measures the engine: its kernels, its cache, its grammars, and the whole of it beside its peers.

    cpu_engine.py    against transformers on the CPU, in turns
    cpu_products.py  a step's products by the type of the weights
    llama_cpp.py     a worker against llama.cpp's server on one GGUF file
    gguf_answers.py  answers of both to the same questions
    sentences.py     a worker against sentence-transformers
    perplexity.py    what each way to keep weights costs in quality
    adapters.py      what LoRA adapters cost, in steps and in loads
    grammar.py       compiling a grammar, a mask, what jumps save
    radix_cache.py   match, insert and evict in a large radix cache
    gpu_host_work.py  what the host does for a step on a GPU, without one
    engines/         the contestants of cpu_engine.py, each in its own process
    radix/           the contestants and workloads of radix_cache.py

Imports the worker, `tests` (checkpoints) and `fleet.serving` (clients and servers).
"""
