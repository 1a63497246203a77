"""Builds the Kubernetes objects of a pool; pure.

Read in this order:
    build.py        the Deployment and the Service
    pod.py          a worker's pod
    environment.py  the worker's settings as environment variables
    labels.py       names and labels
    quantities.py   quantities as text

Imports `resource`, `lifecycle` and the settings.
"""
