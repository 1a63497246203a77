"""The HTTP server's edge: what holds for every request, whatever it asks.

Read in this order:
    startup.py      socket, address and name, settled before a worker serves
    connections.py  connections, bounded in number and time
    edge.py         around the application: request ids, body bounds, time limits
    gate.py         how many requests may be inside; none while the worker drains

Imports errors and metrics.
"""
