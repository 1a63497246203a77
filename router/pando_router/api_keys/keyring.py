"""Maps digests of API keys to their tenants.

A key has 256 random bits, so its SHA-256 can be neither guessed nor inverted, and needs no salt and
no slow hash. The time of a lookup depends only on the digest of the key that was sent, which
reveals nothing useful.
"""

import secrets
from dataclasses import dataclass, field
from hashlib import sha256

from pando_router.api_keys.tenant import Tenant

KEY_PREFIX = "sk-pando-"
"""The prefix by which secret scanners and people recognize a key."""

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class KeyEntry:
    tenant: Tenant
    expires: float | None = None  # Unix time, seconds


@dataclass(frozen=True, slots=True)
class Keyring:
    entries: dict[bytes, KeyEntry]  # by the key's digest
    tenants: dict[str, Tenant] = field(default_factory=dict)

    def with_key(self, key: str, tenant: Tenant) -> "Keyring":
        """This one with a further key, whose tenant is not one of the file's."""
        entry = KeyEntry(tenant)
        return Keyring({**self.entries, sha256(key.encode()).digest(): entry}, self.tenants)

    def find(self, key: bytes) -> KeyEntry | None:
        return self.entries.get(sha256(key).digest())


def new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def digest_of(key: str) -> str:
    """The digest in the form of a key file."""
    return sha256(key.encode()).hexdigest()
