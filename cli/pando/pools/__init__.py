"""`pando pools`: the WorkerPools of a cluster, at a glance."""
