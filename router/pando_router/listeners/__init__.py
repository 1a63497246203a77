"""Observers of requests (`exchange.Listener`).

metrics.py     counts them
access_log.py  logs them, and replicas that fail them
traced.py      records their spans
charging.py    charges their tenants
dashboard.py   keeps the last ones for the dashboard
changing_beginnings.py  reports prompts that find nothing because of a few early bytes

Other listeners are with their subjects: recording/recorder.py, upstreams/learning.py, recent.py,
earlier.py, warming/warming.py. One listener object serves all requests. It reads an exchange and
never changes it; what it remembers until the end is keyed by the exchange.
"""
