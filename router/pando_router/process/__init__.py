"""The router as operating system processes.

Read in this order:
    processes.py   several on one port
    kept.py        restarts a process that ends
    lifecycle.py   readiness and draining
    background.py  tasks beside the requests

`serve.py` starts them.
"""
