"""Grammars that constrained output follows, over llguidance.

Read in this order:
    grammar.py     how far one request has come: fill_mask, accept, rollback, fast_forward
    compiler.py    compiles grammars off the scheduler's thread, and keeps the last ones
    lanes.py       the threads for it, which clients share in turn
    vocabulary.py  the tokenizer as llguidance sees it
    masks.py       the masks of a batch, by several threads
    limits.py      how large a grammar may be
    errors.py      why one cannot be followed

Requests' fields become grammars in `server/jobs/constraints.py`. Imports the tokenizer.
"""
