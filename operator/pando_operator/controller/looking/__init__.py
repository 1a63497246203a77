"""Reads the cluster and Redis.

Read in this order:
    world.py         pools and what belongs to them, from watches
    reading.py       one look at a pool in Redis
    pod_troubles.py  what keeps pods from running

Imports kube, resource and objects.
"""
