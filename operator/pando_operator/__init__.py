"""The operator: keeps each `WorkerPool` of a cluster at the size that its load asks for."""
