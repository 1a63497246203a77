"""The operator: keeps each `WorkerPool` of a Kubernetes cluster at the size that its load asks for."""
