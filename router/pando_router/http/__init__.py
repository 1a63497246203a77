"""The router's HTTP/1.1: `server` for clients, `upstream` for replicas.

Own asyncio protocols on httptools (llhttp): a request costs one task, and usually one read and one
write per side. Nothing here depends on models, placement or Redis.
"""
