"""A replica in virtual time: the worker's own scheduler, caches and meters around a cost model."""
