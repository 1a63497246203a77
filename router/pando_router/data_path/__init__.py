"""A request's way through the router, as bytes; what it decides on the way is in `core`.

Read in this order:
    proxy.py      the entry: who asks, for what, of which model
    reception.py  what a request meets before it is placed
    driver.py     drives `core.tries` with asyncio: place, send, wait, retry, relay
    sending.py    how a request goes to a replica: headers and body
    relay.py      the answer back to the client
    rename.py     another model's name in a body

Imports everything that a request meets, and is imported by `app` alone.
"""
