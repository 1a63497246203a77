"""Namespaces of the radix cache: prefixes are shared within one, never between two.

The time that a prompt takes reveals whether its start was cached, so tenants that must not learn of
each other's prompts may not share a cache. A request's namespace depends on two salts: the header
`x-pando-cache-salt`, by which a router identifies an isolated tenant, and the body's `cache_salt`.
They are hashed so that neither of them can imitate the other, nor both together.

A LoRA adapter computes other keys and values for the same tokens, so each has its own namespaces.
They depend on a hash of its weights: two names of one adapter share them, and an adapter that is
replaced under its name gets others.
"""

from hashlib import blake2b

_DIGEST_BYTES = 16
_SIGN = b"\x00"
"""One byte more than whole tokens: a key that begins with a namespace never has the length of whole
tokens, so no prompt can imitate a namespace."""


def namespace(tenant_salt: str | None, request_salt: str | None) -> bytes:
    """The 17 bytes that prefix all keys of such requests; empty without a salt."""
    if not tenant_salt and not request_salt:
        return b""
    tenant, request = (_utf8(salt or "") for salt in (tenant_salt, request_salt))
    words = len(tenant).to_bytes(8, "big") + tenant + request
    return blake2b(words, digest_size=_DIGEST_BYTES).digest() + _SIGN


def of_adapter(namespace: bytes, identity: bytes) -> bytes:
    """The namespace of requests with an adapter within that of their salts; the same without one.

    Args:
        identity: of the adapter, 16 bytes; empty for the base model
    """
    if not identity:
        return namespace
    words = identity + namespace
    return blake2b(words, digest_size=_DIGEST_BYTES, person=b"adapter").digest() + _SIGN


def of_source(namespace: bytes, digest: bytes) -> bytes:
    """The namespace of an encoder-decoder's requests with this source within that of their salts:
    what the decoder computes for its tokens depends on it."""
    words = digest + namespace
    return blake2b(words, digest_size=_DIGEST_BYTES, person=b"source").digest() + _SIGN


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
