"""Upstreams: engines without heartbeats, such as vLLM, SGLang and llama.cpp.

The routers that know their addresses probe them and send heartbeats for them; the rest of Pando
treats them as replicas.

Read in this order:
    upstreams.py  all upstreams in the settings
    watched.py    one upstream: probes it, and sends heartbeats while it is healthy
    probe.py      reads its health and its models
    engine.py     parses what engines report of themselves
    adapters.py   which LoRA adapters are in its slots
    learning.py   learns its speed from its answers
"""
