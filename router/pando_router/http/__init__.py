"""HTTP/1.1 as the router speaks it: `server` to clients, `upstream` to replicas.

Own asyncio protocols on httptools (llhttp): a request costs one task, and mostly one read and one
write a side. Nothing here knows of models, placement or Redis.
"""
