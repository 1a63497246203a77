"""A fleet in virtual time: routers, replicas and one real Redis, driven by one heap of events."""
