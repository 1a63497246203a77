"""Engines that know nothing of Pando, such as vLLM, SGLang and llama.cpp: probed, and given
heartbeats by the routers that know their addresses. To everything else they are replicas."""
