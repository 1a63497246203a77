"""Engines that know nothing of Pando, such as vLLM, SGLang and llama.cpp: probed, and given
heartbeats by the routers that know their addresses. To everything else they are replicas.

Read in this order:
    upstreams.py  all of this router, as the settings name them now
    watched.py    one of them: probed in turns, given a heartbeat while it is well
    probe.py      asks it how it is and what it serves
    engine.py     what engines say of themselves
    learning.py   how fast it is, learned from its answers
"""
