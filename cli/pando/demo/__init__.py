"""`pando demo`: holds the same conversations with two fleets that differ in their policy.

Read in this order:
    command.py        runs a fleet for each policy in turn
    conversations.py  the load: assistants with long system prompts, users, turns
    measure.py        holds the conversations and measures every turn
    errors.py         what can go wrong in it
    result.py         the table of both, and the verdict
    settings.py       the settings

Imports `up`, which starts the fleets.
"""
