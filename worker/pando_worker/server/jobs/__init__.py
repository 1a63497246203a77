"""From a request that was understood to the job that the scheduler runs.

Read in this order:
    jobs.py         checked against the model
    prompts.py      what every prompt is held against
    sampling.py     sampling in the scheduler's terms
    constraints.py  what a request demands of its output's form
    gbnf.py         GBNF as Lark
    grammars.py     a grammar made off the event loop

Imports service and protocol.
"""
