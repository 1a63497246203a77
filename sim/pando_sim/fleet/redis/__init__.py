"""The one Redis of a run.

Read in this order:
    server.py  a separate Valkey, in memory
    line.py    a connection to it without an event loop
    client.py  redis-py's interface on that connection

Imports nothing of the simulator.
"""
