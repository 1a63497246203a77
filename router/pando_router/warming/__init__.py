"""The bytes of the hottest prefixes, and what is done with them when a replica joins or drains.

Read in this order:
    warming.py     keeps prompts, and answers marks
    prefixes.py    the hottest prefixes of each pool, in bounded memory
    plan.py        which of them to compute for a budget of tokens
    warm_join.py   for a replica that joins
    hand_off.py    for those that stay when one leaves
    performing.py  a claimed mark, from the first prefill to its end
    prefiller.py   sends a prefix to a replica
    replay.py      a request cut down to a prefix of its prompt

Who asks for it is the operator, by marks (`pando_fleet/records/marks.py`).
"""
