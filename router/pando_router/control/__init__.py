"""Every endpoint outside the data path, with FastAPI.

Read in this order:
    app.py      health, metrics, the fleet, models, explanations
    openapi.py  describes the API to clients, as OpenAPI

/healthz and /readyz are here; draining, one of the conditions, is in `process/lifecycle.py`.
"""
