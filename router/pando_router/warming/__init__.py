"""Keeps the bytes of the hottest prefixes, and computes them again when a replica joins or drains.

Read in this order:
    warming.py     keeps prompts, and answers marks
    prefixes.py    the hottest prefixes of each pool, in bounded memory
    plan.py        which of them to compute for a budget of tokens
    warm_join.py   for a replica that joins
    hand_off.py    for those that stay when one leaves
    performing.py  performs a claimed mark, and reports the outcome
    prefiller.py   sends a prefix to a replica
    replay.py      a request cut down to a prefix of its prompt

The operator requests warming and hand-off by marks (`pando_fleet/records/marks.py`).
"""
