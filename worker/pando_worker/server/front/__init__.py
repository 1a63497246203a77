"""The edge of the HTTP server: rules for every request to any endpoint.

Read in this order:
    startup.py      chooses socket, address and name before a worker serves
    connections.py  how many connections there may be
    edge.py         wraps the application: request ids, body limits, cancellation
    admin.py        the endpoints that want a token
    long_texts.py   reads texts of JSON that are long piece by piece
    json_pieces.py  reads JSON of many values, or with long texts, piece by piece
    json_bodies.py  reads and validates bodies, large ones beside the event loop
    gate.py         limits requests in flight; admits none while the worker drains

The server is the fleet's (`pando_fleet.http.server`). Imports errors and metrics.
"""
