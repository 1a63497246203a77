"""What a worker gets of a request's headers: never a tenant's key, and its name space where it has
one of its own."""

from pydantic import SecretStr

from pando_router.settings import RouterSettings
from pando_router.tenants.tenant import Tenant

Headers = list[tuple[bytes, bytes]]

SALT_HEADER = b"x-pando-cache-salt"

_SALT = frozenset((SALT_HEADER,))
_SALT_AND_KEYS = _SALT | {b"authorization", b"x-api-key"}


class Forwarding:
    """Where the router checks keys, they end here. Otherwise they are the worker's to check.

    A worker that wants a key of its own gets it in place of the client's: `upstream_api_key`, or
    that of the upstream's own file.
    """

    def __init__(self, settings: RouterSettings) -> None:
        self.adopt(settings)

    def adopt(self, settings: RouterSettings) -> None:
        """Other settings hold from now on."""
        usual = settings.upstream_api_key
        self._drops_keys = settings.api_keys is not None
        self._usual = _bearer(usual) if usual else []
        self._own = {
            one.url: _bearer(one.api_key) for one in settings.upstream if one.api_key is not None
        }

    def key(self, url: str) -> Headers:
        """What the router itself shows at `url`: a header, or none."""
        return self._own.get(url, self._usual)

    def __call__(self, headers: Headers, tenant: Tenant, url: str) -> Headers:
        added = self._own.get(url, self._usual) if self._own else self._usual
        dropped = _SALT_AND_KEYS if self._drops_keys or added else _SALT
        kept = [header for header in headers if header[0] not in dropped]
        kept += added
        if tenant.isolate:
            kept.append((SALT_HEADER, tenant.name.encode()))
        return kept


def _bearer(key: SecretStr) -> Headers:
    return [(b"authorization", b"Bearer " + key.get_secret_value().encode())]
