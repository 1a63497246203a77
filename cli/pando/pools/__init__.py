"""`pando pools`: shows the WorkerPools of a cluster.

    command.py  its options, and the cluster
    show.py     reads pools from the API server and prints them, once or repeatedly
    table.py    shows the size of each, the size that it wants, and why

Imports the operator's Kubernetes client.
"""
