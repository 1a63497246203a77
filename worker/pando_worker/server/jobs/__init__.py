"""Turns a parsed request into the job that the scheduler runs.

Read in this order:
    jobs.py         checks the request against the model, and makes the job
    chats.py        makes the job of a conversation, in any API
    long_conversations.py  refuses conversations before their bodies are read
    prompts.py      checks that every prompt must pass
    pooled.py       the texts of a request that are embedded or classified
    sampling.py     the request's sampling parameters for the scheduler
    constraints.py  constraints on the output, as one grammar
    beside_calls.py  the grammar of calls, beside an answer that may have its own
    gbnf.py         translates GBNF into Lark
    lark_operators.py  which of Lark's operators clients may use
    grammars.py     builds a grammar off the event loop

Imports service and protocol.
"""
