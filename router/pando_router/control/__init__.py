"""Every endpoint outside the data path, with FastAPI.

Read in this order:
    app.py      health, metrics, the fleet, models, explanations
    openapi.py  describes the API to clients, as OpenAPI

/readyz and /livez are here; `process/lifecycle.py` decides their answers.
"""
