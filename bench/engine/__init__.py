"""Measures the engine: its kernels, its cache, its grammars, and the whole of it beside its peers.

    cpu_engine.py    against transformers on the CPU, in turns
    cpu_products.py  a step's products by the type of the weights
    llama_cpp.py     a worker against llama.cpp's server on one GGUF file
    gguf_answers.py  answers of both to the same questions
    perplexity.py    what each way to keep weights costs in quality
    adapters.py      what LoRA adapters cost, in steps and in loads
    grammar.py       compiling a grammar, a mask, what jumps save
    radix_cache.py   match, insert and evict in a large radix cache
    gpu_engine.py    decodes and prefills against a GPU's limits
    engines/         the contestants of cpu_engine.py, each in its own process
    radix/           the contestants and workloads of radix_cache.py
    gpu/             the parts of gpu_engine.py

Imports the worker, `tests` (checkpoints) and `fleet.serving` (clients and servers).
"""
