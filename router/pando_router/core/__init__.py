"""Decides what becomes of requests, without I/O: events in, actions out, as h11 does for HTTP.

Read in this order:
    tries.py         one request: its states, what happened, what comes next
    flight.py        its stay at one replica, with the undo of what placing did
    events.py        what the observer of a request is told
    route.py         a replica for one try, or why there is none
    line.py          requests that wait for a place
    fair_queue.py    their order
    drain_rate.py    when a refused client should try again
    breaker.py       leaves a replica that fails alone for a while
    retry_budget.py  how many requests may be tried again
    in_flight.py     this router's own requests, by replica
    alone.py         placement while Redis is away
    rendezvous.py    hashing with bounded loads, without memory

`data_path/driver.py` and `admission/` drive it with asyncio, `pando_sim.fleet.routing.router` with
a virtual clock. Imports errors and fleet's types; clocks and dice come in as arguments.
"""
