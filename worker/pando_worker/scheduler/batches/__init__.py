"""Requests to arrays for a step, and a step's arrays back to requests.

Read in this order:
    batching.py      builds the `ForwardBatch`
    context_cost.py  how much longer a token takes behind a long context
    constrained.py   masks of grammars, and tokens that need none
    results.py       what each row yielded
    outputs.py       tokens to send, and endings

The batch itself is `pando_worker.batch`.
"""
