"""Builds the Kubernetes objects of a pool; pure.

Read in this order:
    build.py        the Deployment, the Service and the PodDisruptionBudget
    pod.py          a worker's pod
    environment.py  the worker's settings as environment variables
    labels.py       names and labels
    quantities.py   quantities as text

Imports `resource`, `lifecycle` and the settings.
"""
