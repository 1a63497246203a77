"""Tensor parallelism: rank 0 schedules and sends each batch to the other ranks.

Read in this order:
    leader.py    starts the other ranks, and sends them every batch
    follower.py  runs every batch that rank 0 sends
    page_tables.py  page tables on their way to other ranks
    adapter_load.py  what rank 0 sends beside batches
    adapters.py  puts the adapters that rank 0 sends into a rank's memory
    group.py     how the ranks join their process group
"""
