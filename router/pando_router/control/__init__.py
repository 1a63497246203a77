"""Every endpoint outside the data path, with FastAPI.

Read in this order:
    app.py      the application: all packages' routes, the root, errors
    health.py   /healthz, /readyz, /metrics, /version
    fleet.py    /fleet, /v1/models
    openapi.py  describes the API to clients, as OpenAPI

Draining, one of the conditions of /readyz, is in `process/lifecycle.py`.
"""
