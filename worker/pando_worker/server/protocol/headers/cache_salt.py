"""A request's cache namespace: the router sets it in a header, the client in the body.

The router removes the header from clients' requests. A client that reaches a worker directly can
set any value: namespaces separate a router's tenants, but do not replace a network policy.
"""

from starlette.requests import Request

from pando_worker.memory.namespace import namespace
from pando_worker.server.errors import bad_request

HEADER = "x-pando-cache-salt"
MAX_LENGTH = 1024


def namespace_of(request: Request, cache_salt: str | None) -> bytes:
    """Raises ApiError 400 if the header is too long."""
    tenant = request.headers.get(HEADER)
    if tenant is not None and len(tenant) > MAX_LENGTH:
        raise bad_request(f"{HEADER} has more than {MAX_LENGTH} characters", HEADER)
    return namespace(tenant, cache_salt)
