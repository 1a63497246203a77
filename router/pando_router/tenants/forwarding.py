"""Builds the headers that a worker receives: never a tenant's key, but its namespace if it is
isolated."""

from dataclasses import dataclass

from pydantic import SecretStr

from pando_fleet.http.api_key import bearer
from pando_fleet.http.server.headers import Headers, name_of
from pando_router.api_keys.tenant import Tenant
from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.http.headers import NOT_FORWARDED, PRIORITY_HEADER, without

SALT_HEADER = b"x-pando-cache-salt"
TENANT_HEADER = b"x-pando-tenant"
"""Whose request it is: a worker keeps responses for their tenant alone."""

OWN = b"x-pando-"
"""Headers between routers and workers; a client's never pass."""

UNDERSCORE = b"_"
"""Headers with it never pass, as with nginx: behind a replica's gateway that turns hyphens into
underscores, as CGI and WSGI do, `content_length` would be taken for the header of the framing."""

KEYS = frozenset((b"authorization", b"x-api-key"))


@dataclass(frozen=True, slots=True)
class _Rules:
    """The key that replaces the client's at a replica, and which of its headers never pass."""

    usual: Headers  # with the key; none: the client's own passes
    own: dict[str, Headers]  # by URL: upstreams with a key file
    dropped: frozenset[bytes]
    dropped_for_key: frozenset[bytes]  # where another key is added

    @classmethod
    def of(cls, settings: RouterSettings) -> "_Rules":
        usual = settings.upstream_api_key
        priority = () if settings.allow_priority_header else (PRIORITY_HEADER,)
        dropped = NOT_FORWARDED.union(priority)
        return cls(
            _bearer(usual) if usual else [],
            {one.url: _bearer(one.api_key) for one in settings.upstream if one.api_key is not None},
            dropped if settings.api_keys is None else dropped | KEYS,  # else keys end here
            dropped | KEYS,
        )


class Forwarding:
    """Removes the client's key if this router checks keys; otherwise the worker checks it.

    A worker that requires a key of its own gets that one instead: the upstream's own, otherwise
    `upstream_api_key`.
    """

    def __init__(self, live: Live) -> None:
        self._rules = live.derived(_Rules.of)

    def key(self, url: str) -> Headers:
        """The header by which the router authenticates at `url`, or none."""
        rules = self._rules.now
        return rules.own.get(url, rules.usual)

    def __call__(
        self,
        headers: Headers,
        request_id: str,
        tenant: Tenant,
        url: str,
        *,
        connection: bytes = b"",
    ) -> Headers:
        """The headers for the replica at `url`; `connection` is the client's Connection header."""
        rules = self._rules.now
        added = rules.own.get(url, rules.usual)
        kept = without(headers, rules.dropped_for_key if added else rules.dropped, connection)
        names = b"\n".join(map(name_of, kept))
        # Most have neither, so one look at all costs less; `in` would raise and drop a TypeError.
        if names.find(OWN) >= 0 or names.find(UNDERSCORE) >= 0:
            kept = [
                header
                for header in kept
                if not header[0].startswith(OWN) and UNDERSCORE not in header[0]
            ]
        kept.append((b"x-request-id", request_id.encode()))
        kept += added
        if tenant.name:
            kept.append((TENANT_HEADER, tenant.name.encode()))
        if tenant.isolate:
            kept.append((SALT_HEADER, tenant.name.encode()))
        return kept


def _bearer(key: SecretStr) -> Headers:
    return [bearer(key.get_secret_value())]
