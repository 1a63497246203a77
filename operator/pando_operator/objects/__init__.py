"""The Kubernetes objects of a pool: pure builders, and nothing that talks to a server.

Read in this order:
    build.py        the Deployment and the Service
    pod.py          a worker's pod
    environment.py  its settings as variables
    labels.py       names and labels
    quantities.py   quantities as text

Imports `resource`, `lifecycle` and the settings.
"""
