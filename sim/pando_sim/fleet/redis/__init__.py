"""The one Redis of a run.

Read in this order:
    server.py  a Valkey of its own, in memory
    line.py    a line to it without an event loop

Imports nothing of the simulator.
"""
