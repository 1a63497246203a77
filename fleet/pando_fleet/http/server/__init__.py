"""The HTTP/1.1 server of routers and workers: own asyncio protocols on httptools (llhttp).

Read in this order:
    server.py          listens, bounds the number of connections, passes requests to one handler
    connection.py      one client's connection: its phases and time limits
    request_reader.py  bytes into requests; refuses what two servers could read differently
    incoming.py        one request and its answer, as a handler sees them
    incoming_body.py   its body while it arrives
    bodies.py          the bodies of all requests: who may send, who is cut when there is no room
    asgi.py            a handler that runs an ASGI app
    byte_budget.py     bytes of memory that many owners share
    half_closed.py     a client that has ended its input: does it still read?
    until_gone.py      cancels a handler whose client has disconnected
    sweeper.py         the time limits of many connections by one timer
    limits.py          the limits
    settings.py        those that a user can set
    headers.py, target.py   what a head consists of

A request costs one task, and usually one read and one write. Needs httptools, which the extras of
routers and workers install. Imports `errors` and `request_id` beside it, nothing of any model.
"""
