"""Who changes a simulated pool's size, the Kubernetes in which that happens, and what it costs."""
