"""Protects every endpoint outside the data path: most require the API key of an admin."""

from collections.abc import Collection, MutableMapping
from typing import Any

from pando_router.api_keys.tenant import Tenant
from pando_router.errors import ApiError
from pando_router.tenants.tenants import Tenants

SCOPE_KEY = "pando.tenant"

ROOT_PATH = "/"
OPEN_PATHS = frozenset((ROOT_PATH, "/health", "/healthz", "/readyz", "/version", "/openapi.json"))
_READING = ("GET", "HEAD")
_MODELS = "/v1/models"  # every tenant sees its own models


def tenant_of(scope: MutableMapping[str, Any]) -> Tenant:
    """The tenant of a request that passed a `Guard`."""
    tenant: Tenant = scope[SCOPE_KEY]
    return tenant


class Guard:
    """Admits requests before their bodies are read, and puts each one's tenant into its scope.

    Every path requires an admin unless it is known to be harmless, so a new path starts protected.
    `also_open` can be read without a key, `for_all` want the key of any tenant.
    """

    def __init__(
        self, tenants: Tenants, also_open: Collection[str] = (), for_all: Collection[str] = ()
    ) -> None:
        self._tenants = tenants
        self._open = OPEN_PATHS.union(also_open)
        self._for_all = frozenset((_MODELS, *for_all))

    def __call__(self, scope: MutableMapping[str, Any]) -> str | None:
        """The tenant's name, if the request has a tenant with a name.

        Raises ApiError 401 or 403."""
        path: str = scope["path"]
        if path in self._open and scope["method"] in _READING:
            return None
        scope[SCOPE_KEY] = tenant = self._tenants.of(scope["headers"])
        if tenant.admin or path in self._for_all or path.startswith(_MODELS + "/"):
            return tenant.name or None
        raise ApiError(
            403, f"{path} requires the API key of an admin", code="insufficient_permissions"
        )
