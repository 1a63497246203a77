"""Which requests the next step runs.

Read in this order:
    planner.py          the queues, the next step, and how many prompt tokens it may have
    waiting.py          the waiting requests, in the order of a policy of `policies/schedule/`
    matches.py          how much of each waiting prompt is cached
    sharing.py          prefixes shared among requests that wait together
    admission.py        which requests start, and the victim of a retraction
    encoding.py         how many sources a step encodes
    prompts.py          how prompts share the tokens that the planner gives them
    new_token_ratio.py  how much running requests are expected to produce

Imports pages and batches.
"""
