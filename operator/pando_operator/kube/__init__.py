"""A small layer over the Kubernetes client: calls with plain dicts, watches, leases and events."""
