"""Whose request it is: the router says so in a header that it removes from clients' requests.

A client that reaches a worker directly can set any value, as with the cache's name spaces.
"""

from starlette.requests import Request

HEADER = "x-pando-tenant"


def tenant_of(request: Request) -> str:
    """Empty for a router without API keys, and for a client that reaches the worker directly."""
    return request.headers.get(HEADER, "")
