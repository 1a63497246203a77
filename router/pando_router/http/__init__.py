"""HTTP/1.1 to replicas: `upstream` sends a request, `answer` reads the answer.

Own asyncio protocols on httptools (llhttp). The server for clients is `pando_fleet.http.server`.
Nothing here depends on models, placement or Redis.
"""
