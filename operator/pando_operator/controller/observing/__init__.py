"""Reads the cluster and Redis.

Read in this order:
    watch_caches.py  pools and their objects, from watches
    reading.py       one pool's heartbeats, marks and queues, from Redis
    sightings.py     since when a pod is in a state, by the operator's own clock
    gpu_shares.py    what the pools want of each kind of GPU, and may have
    turns.py         one pool after the other, where the operator itself has changed
    adapter_hosts.py  the replicas that adapters are loaded on
    pod_troubles.py  why pods do not run

Imports kube, resource, lifecycle, objects and scaling.
"""
