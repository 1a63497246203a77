"""`pando demo`: the same conversations with two fleets, which choose replicas differently.

Read in this order:
    command.py        a fleet for each policy, one after the other, and the table of both
    conversations.py  the load: assistants with long system prompts, users, turns
    measure.py        holds the conversations and measures every turn
    settings.py       the settings

Imports `up`, which starts the fleets.
"""
