"""A LoRA adapter as a replica reports it."""

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated

from msgspec import Meta

IDENTITY_HEADER = "x-pando-adapter-identity"
"""Header of a worker's answer to a load: the adapter's `identity`."""

Seconds = Annotated[float, Meta(ge=0)]


class AdapterPlace(StrEnum):
    """Where a replica holds an adapter's weights."""

    DEVICE = "device"  # in a slot, or being loaded into one
    WAITING = "waiting"  # requests need it, and wait for a slot: requests hold all
    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """
    Attributes:
        name: under which requests name it, like a model
        identity: hash of its weights in hex; empty for an engine that does not report one. Two
            names may have one identity, and a name gets another one when its weights are replaced
    """

    name: Annotated[str, Meta(min_length=1)]
    identity: Annotated[str, Meta(pattern=r"\A([0-9a-f]{32})?\Z")] = ""
    place: AdapterPlace = AdapterPlace.DISK
    pinned: bool = False  # it keeps its slot while no request uses it

    @property
    def key(self) -> str:
        """By what placement knows it: its identity, else a hash of its name."""
        return self.identity or _key_of(self.name)


@lru_cache(maxsize=4096)
def short_key(key: str) -> str:
    """The first 9 bytes of an `Adapter.key`, as text for fields in Redis, which has one for each
    adapter of each replica."""
    return urlsafe_b64encode(bytes.fromhex(key)[:9]).decode()


@lru_cache(maxsize=4096)
def _key_of(name: str) -> str:
    return blake2b(b"name\xff" + name.encode(), digest_size=16).hexdigest()
