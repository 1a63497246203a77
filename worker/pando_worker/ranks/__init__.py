"""Tensor parallelism: rank 0 decides and sends each batch to the others.

Read in this order:
    leader.py    starts the other ranks, and sends them every batch
    follower.py  runs every batch, and decides nothing
    group.py     how the ranks meet
"""
