"""The Kubernetes objects of a pool: pure builders, and nothing that talks to a server."""
