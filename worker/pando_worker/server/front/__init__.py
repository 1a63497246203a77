"""The edge of the HTTP server: rules for every request to any endpoint.

Read in this order:
    startup.py      chooses socket, address and name before a worker serves
    connections.py  connections, bounded in number and time
    edge.py         wraps the application: request ids, body limits, cancellation
    gate.py         limits requests in flight; admits none while the worker drains

Imports errors and metrics.
"""
