"""The router as operating system processes.

Read in this order:
    processes.py   several on one port
    kept.py        restarts a process that ends
    lifecycle.py   counts requests, and waits for the end of those that run
    background.py  tasks beside the requests

`serve.py` starts them, and has the steps of a drain.
"""
