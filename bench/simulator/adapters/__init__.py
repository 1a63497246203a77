"""Which placement serves many LoRA adapters best: fleets with few slots, each with every policy.

Run: python -m bench.simulator.adapters. Read in this order:
    chats.py     the requests: conversations, each with one of 200 adapters
    cells.py     slots and loads, and one run of a policy in one of them
    __main__.py  the command, and its table
"""
