"""The dashboard: one self-contained page, and the numbers that it draws.

Read in this order:
    history.py         the charts' numbers, one point a second
    replica_totals.py  tokens that replicas count, of all and by model
    events.py          what happened to replicas and to Redis
    requests.py        the last requests
    sampler.py         fills history and events each second
    routes.py          serves the page and, to admins, the data
    ring.py            the bounded, numbered list behind the above

The numbers are this router's own (this process's, if several share the port); all routers show the
same fleet. Everything is bounded, here and in the page. `page/` has the page's own files; those
that it shares with other pages are in `pages/`.
"""
