"""Who follows a request through its events (`core/events.py`).

audience.py    which listeners a request has
metrics.py     what is counted of it
access_log.py  what is logged of it, and of replicas that fail it
traced.py      its spans

Others lie with their subjects: tenants/limiter.py, recording/entry.py, upstreams/learning.py,
recent.py, earlier.py, warming/warming.py. A listener reads the exchange and changes nothing of it.
"""
