"""Who follows requests through their events (`exchange.Listener`).

metrics.py     what is counted of them
access_log.py  what is logged of them, and of replicas that fail them
traced.py      their spans
charging.py    what their tenants pay

Others lie with their subjects: recording/recorder.py, upstreams/learning.py, recent.py, earlier.py,
warming/warming.py. A listener is one object for all requests. It reads an exchange and changes
nothing of it; what it keeps of one until its end it keeps by the exchange.
"""
