"""`pando demo`: holds the same conversations with two fleets that differ in their policy.

Read in this order:
    command.py        runs a fleet for each policy in turn and shows both in a table
    conversations.py  the load: assistants with long system prompts, users, turns
    measure.py        holds the conversations and measures every turn
    settings.py       the settings

Imports `up`, which starts the fleets.
"""
