"""Everything but the data path, by FastAPI.

Read in this order:
    app.py      health, metrics, the fleet, models, explanations
    openapi.py  what clients may ask, as OpenAPI

/readyz and /livez are here; what they say is `process/lifecycle.py`'s.
"""
