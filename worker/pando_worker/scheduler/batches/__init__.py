"""Turns requests into the arrays of a step, and the arrays of its result into outputs.

Read in this order:
    batching.py      builds the `ForwardBatch`
    decodes.py       the running requests as arrays, kept from step to step
    page_table.py    the page table, kept likewise
    positions.py     rotary positions of requests with images
    context_cost.py  how much a long context slows a prompt token down
    constrained.py   grammar masks, and jump-forward over forced tokens
    results.py       the result of each row
    outputs.py       the tokens to send, and why a request ends

The batch itself is `pando_worker.batch`.
"""
