"""The path of a request's bytes through the router; the decisions on it are in `core`.

Read in this order:
    proxy.py      the entry point
    reception.py  the checks before placement: capacity, API key, model, rate limits
    driver.py     drives `core.tries` with asyncio: place, send, wait, retry, relay
    sending.py    sends a request to a replica: headers and body
    relay.py      streams the answer back to the client

Imports most of the router; imported by `app` only.
"""
