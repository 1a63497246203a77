"""Protects every endpoint outside the data path: most require the API key of an admin."""

from collections.abc import Collection, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from pando_router.api_keys.tenant import Tenant
from pando_router.errors import ApiError, error_answer
from pando_router.tenants.tenants import Tenants

SCOPE_KEY = "pando.tenant"

ROOT_PATH = "/"
OPEN_PATHS = frozenset((ROOT_PATH, "/healthz", "/readyz", "/openapi.json"))
_MODELS = "/v1/models"  # every tenant sees its own models


def tenant_of(scope: MutableMapping[str, Any]) -> Tenant:
    """The tenant of a request that passed a `Guard`."""
    tenant: Tenant = scope[SCOPE_KEY]
    return tenant


class Guard:
    """Wraps an ASGI app, and puts the request's tenant into its scope.

    Every path requires an admin unless it is known to be harmless, so a new path starts protected.
    """

    def __init__(self, app: ASGIApp, tenants: Tenants, also_open: Collection[str] = ()) -> None:
        self._app = app
        self._tenants = tenants
        self._open = OPEN_PATHS.union(also_open)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open:
            try:
                scope[SCOPE_KEY] = self._tenant(scope)
            except ApiError as error:
                await _send(send, error)
                return
        await self._app(scope, receive, send)

    def _tenant(self, scope: Scope) -> Tenant:
        tenant = self._tenants.of(scope["headers"])
        path: str = scope["path"]
        if tenant.admin or path == _MODELS or path.startswith(_MODELS + "/"):
            return tenant
        raise ApiError(
            403, f"{path} requires the API key of an admin", code="insufficient_permissions"
        )


async def _send(send: Send, error: ApiError) -> None:
    status, headers, body = error_answer(error)
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
