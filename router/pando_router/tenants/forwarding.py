"""What a worker gets of a request's headers: never a tenant's key, and its name space where it has
one of its own."""

from pando_router.settings import RouterSettings
from pando_router.tenants.tenant import Tenant

Headers = list[tuple[bytes, bytes]]

SALT_HEADER = b"x-pando-cache-salt"

_KEYS = frozenset((b"authorization", b"x-api-key"))
_SALT = frozenset((SALT_HEADER,))


class Forwarding:
    """Where the router checks keys, they end here. Otherwise they are the worker's to check."""

    @classmethod
    def of(cls, settings: RouterSettings) -> "Forwarding":
        key = settings.upstream_api_key
        return cls(
            checks_keys=settings.api_keys is not None,
            upstream_key=key.get_secret_value() if key else None,
        )

    def __init__(self, *, checks_keys: bool, upstream_key: str | None) -> None:
        """
        Args:
            upstream_key: for workers that want a key of their own, in place of the client's.
        """
        self._dropped = _SALT | _KEYS if checks_keys or upstream_key else _SALT
        self._added: Headers = []
        if upstream_key:
            self._added.append((b"authorization", b"Bearer " + upstream_key.encode()))

    def __call__(self, headers: Headers, tenant: Tenant) -> Headers:
        dropped = self._dropped
        kept = [header for header in headers if header[0] not in dropped]
        kept += self._added
        if tenant.isolate:
            kept.append((SALT_HEADER, tenant.name.encode()))
        return kept
