"""`pando pools`: the WorkerPools of a cluster, at a glance.

    command.py  reads them from the API server, once or again and again
    table.py    what each has and wants, and why

Imports the operator's Kubernetes client.
"""
