"""Tensor parallelism: rank 0 schedules and sends each batch to the other ranks.

Read in this order:
    leader.py    starts the other ranks, and sends them every batch
    follower.py  runs every batch that rank 0 sends
    group.py     how the ranks join their process group
"""
