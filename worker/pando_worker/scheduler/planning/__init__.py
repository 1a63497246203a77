"""Which requests the next step runs.

Read in this order:
    planner.py          the queues, and the next step
    policy.py           the order in which waiting requests are considered
    sharing.py          prefixes shared among requests that wait together
    admission.py        which requests start, and the victim of a retraction
    new_token_ratio.py  how much running requests are expected to produce

Imports pages and batches.
"""
