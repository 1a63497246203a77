"""Gives a tenant its own namespace in the caches of other engines.

Pando's workers get the namespace as a header. vLLM and SGLang know namespaces only as fields of a
request's body, which any client can set. So for a tenant with `isolate`, those fields are derived
from a secret that no other tenant knows.
"""

import hmac
from collections.abc import Callable

import msgspec

from pando_router.api_keys.tenant import Tenant
from pando_router.endpoints import ENDPOINTS

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Salting:
    def __init__(self, kind_of: Callable[[str], str]) -> None:
        """`kind_of` returns the engine of the replica at a URL; empty for a Pando worker."""
        self._kind_of = kind_of

    def __call__(self, body: bytes, path: str, tenant: Tenant, url: str) -> bytes:
        """The body for the replica at `url`; `body` must be a JSON object."""
        if not tenant.isolate:
            return body
        field = ENDPOINTS[path].salts.get(self._kind_of(url))
        if field is None:
            return body
        members = _members(body)
        own = msgspec.json.decode(members.get(field, b"null")) or ""
        # Encoded anew, because the same text can be escaped in several ways.
        salt = hmac.digest(tenant.secret, msgspec.json.encode(own), "sha256").hex()
        members[field] = msgspec.Raw(msgspec.json.encode(salt))
        return msgspec.json.encode(members)
