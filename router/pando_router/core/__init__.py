"""Decides the next action for each request, without I/O: events in, actions out, as in h11.

Read in this order:
    tries.py          the state machine of one request
    flight.py         one request at one replica; closing it undoes the placement
    events.py         the events that a request's observer receives
    route.py          a replica for one try, or why there is none
    bounded_queue.py  the requests that wait for a place, up to a limit
    fair_queue.py     their order
    drain_rate.py     computes Retry-After from the rate of placements
    breaker.py        stops requests to a failing replica for a while
    promises.py       whether replicas keep what they compute
    retry_budget.py   limits the share of retries
    in_flight.py      counts this router's own requests by replica
    alone.py          placement while Redis is away
    rendezvous.py     stateless hashing with bounded loads

`data_path/driver.py` and `admission/` drive it with asyncio, `pando_sim.fleet.routing.router` with
a virtual clock. Imports errors and fleet's types; clocks and random generators are arguments.
"""
