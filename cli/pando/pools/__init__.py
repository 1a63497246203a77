"""`pando pools`: shows the WorkerPools of a cluster.

    command.py  reads them from the API server, once or repeatedly
    table.py    shows the size of each, the size that it wants, and why

Imports the operator's Kubernetes client.
"""
