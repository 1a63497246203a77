"""A tenant's name space in the caches of other engines.

Pando's workers are told it by a header. vLLM and SGLang know name spaces only by fields of a
request's body, which everybody may set to anything: so what stands there for a tenant with
`isolate` is made of what no other tenant knows.
"""

import hmac
from collections.abc import Callable

import msgspec

from pando_router.api_keys.tenant import Tenant
from pando_router.endpoints import ENDPOINTS

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Salting:
    def __init__(self, kind_of: Callable[[str], str]) -> None:
        """`kind_of` says by its URL which engine a replica is; empty: one of Pando's."""
        self._kind_of = kind_of

    def __call__(self, body: bytes, path: str, tenant: Tenant, url: str) -> bytes:
        """The body of a request for the replica at `url`; `body` is a JSON object."""
        if not tenant.isolate:
            return body
        field = ENDPOINTS[path].salts.get(self._kind_of(url))
        if field is None:
            return body
        members = _members(body)
        own = msgspec.json.decode(members.get(field, b"null")) or ""
        # Encoded anew, as one text may be spelled in several ways.
        salt = hmac.digest(tenant.secret, msgspec.json.encode(own), "sha256").hex()
        members[field] = msgspec.Raw(msgspec.json.encode(salt))
        return msgspec.json.encode(members)
