"""Which name space of the cache a request is in: the router's word in a header, the client's in the
body.

The router removes the header from what clients send. Who reaches a worker past the router may say
what he likes: name spaces keep a router's tenants apart, they do not replace a network policy.
"""

from starlette.requests import Request

from pando_worker.memory.namespace import namespace
from pando_worker.server.errors import bad_request

HEADER = "x-pando-cache-salt"
MAX_LENGTH = 1024


def namespace_of(request: Request, cache_salt: str | None) -> bytes:
    """Raises ApiError 400 for a header that is too long."""
    tenant = request.headers.get(HEADER)
    if tenant is not None and len(tenant) > MAX_LENGTH:
        raise bad_request(f"{HEADER} has more than {MAX_LENGTH} characters", HEADER)
    return namespace(tenant, cache_salt)
