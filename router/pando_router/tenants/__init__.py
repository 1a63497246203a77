"""Who asks, what they may, and how much: API keys, tenants and their rate limits.

`Tenants` finds the tenant of a request's key, `Limiter` takes its request and tokens from its rate
limits, `Guard` stands in front of everything that is not the data path. Without a key file there is
one tenant, `OPEN`, who may do everything.
"""
