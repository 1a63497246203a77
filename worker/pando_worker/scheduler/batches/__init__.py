"""Turns requests into the arrays of a step, and the arrays of its result into outputs.

Read in this order:
    batching.py      builds the `ForwardBatch`
    sampling.py      how its rows sample
    decodes.py       the running requests as arrays, kept from step to step
    page_table.py    the page table, kept likewise
    changed_pages.py  what page tables on a GPU and in other ranks lack
    positions.py     rotary positions of requests with images
    context_cost.py  how much a long context slows a prompt token down
    constrained.py   grammar masks, and jump-forward over forced tokens
    results.py       the result of each row
    pooling.py       which tokens are pooled, and the vector of all chunks
    alignment.py     the weights of alignment heads, made ready
    verification.py  the tokens behind which choices verify an output
    outputs.py       the tokens to send, and why a request ends

The batch itself is `pando_worker.batch`.
"""
