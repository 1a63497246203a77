"""Who may do what, and how much: tenants, their permissions and their rate limits.

`Tenants` finds the tenant of a request's key, `Limiter` takes its request and tokens from its rate
limits, and `Guard` protects every endpoint outside the data path. Without a key file there is one
tenant, `OPEN`, without restrictions.
"""
