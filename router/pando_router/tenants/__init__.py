"""Who may do what, and how much: tenants, their permissions and their rate limits.

    tenants.py       `Tenants` finds the tenant of a request's key, and refuses an unknown one
    limiter.py       `Limiter` takes its request and tokens from its rate limits
    charge.py        what was taken; `listeners/charging.py` corrects it by the actual use
    settlements.py   writes these corrections to Redis
    rate_headers.py  rate limits as headers of an answer
    forwarding.py    the headers that a worker receives
    salting.py       a tenant's own namespace in other engines' caches
    guard.py         `Guard` protects every endpoint outside the data path

Without a key file there is one tenant, `OPEN`, without restrictions.
"""
