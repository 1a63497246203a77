"""The router as processes of an operating system.

Read in this order:
    processes.py   several on one port
    kept.py        a process that is started again
    lifecycle.py   readiness, and the end: nothing new is taken
    background.py  tasks beside the requests

`serve.py` starts them.
"""
