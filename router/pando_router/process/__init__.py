"""The router as operating system processes.

Read in this order:
    processes.py   several on one port
    kept.py        restarts a process that ends
    lifecycle.py   draining: no new requests, and the end of those that run
    background.py  tasks beside the requests

`serve.py` starts them.
"""
