"""Grammars for constrained output, on llguidance.

Read in this order:
    grammar.py     the state of one request: fill_mask, accept, rollback, fast_forward
    compiler.py    compiles grammars off the scheduler's thread and caches recent ones
    lanes.py       the compiler's threads, which serve clients in turn
    vocabulary.py  the tokenizer, in llguidance's form
    fit.py         what a grammar needs for a tokenizer's peculiarities
    masks.py       fills the masks of a batch on several threads
    limits.py      how large a grammar may be
    speech.py      the rules of a speech model's output
    errors.py      GrammarError

Requests' fields become grammars in `server/jobs/constraints.py`. Imports the tokenizer.
"""
