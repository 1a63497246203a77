"""Name spaces of the radix cache: prefixes are shared within one, never across its border.

How long a prompt takes tells whether its start was cached, so tenants that must not learn of each
other's prompts may not share a cache. A request's name space is made of two words: the header
`x-pando-cache-salt`, by which a router names a tenant that is kept apart, and the body's
`cache_salt`. They are hashed such that no one of them can imitate the other, or both together.
"""

from hashlib import blake2b

_DIGEST_BYTES = 16
_SIGN = b"\x00"
"""One byte more than whole tokens: what begins with it is never as long as a page of tokens, or a
part of one, so no prompt can imitate a name space."""


def namespace(tenant_salt: str | None, request_salt: str | None) -> bytes:
    """17 bytes that begin all keys of such requests; none where they have no salt."""
    if not tenant_salt and not request_salt:
        return b""
    tenant, request = (_utf8(salt or "") for salt in (tenant_salt, request_salt))
    words = len(tenant).to_bytes(8, "big") + tenant + request
    return blake2b(words, digest_size=_DIGEST_BYTES).digest() + _SIGN


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
