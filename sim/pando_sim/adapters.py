"""LoRA adapters by their names: what stands for the hash of their weights, and their prefixes."""

from functools import lru_cache
from hashlib import blake2b

from pando_fleet.placement.prefix import KEY_BYTES
from pando_fleet.registry.adapter import Adapter

IDENTITY_BYTES = 16


@lru_cache(maxsize=4096)
def identity_of(name: str) -> bytes:
    """As if it was the hash of its weights; empty for no adapter."""
    return blake2b(name.encode(), digest_size=IDENTITY_BYTES).digest() if name else b""


def key_of(name: str) -> str:
    """By what placement knows it."""
    return Adapter(name=name, identity=identity_of(name).hex()).key if name else ""


def of_adapter(keys: bytes, adapter: str) -> bytes:
    """The chunk keys of a prompt for this adapter, which no other one shares.

    Routers begin each chain with the adapter's key instead (`pando_fleet.placement.prefix.seed`);
    here the prompt's keys may be cheaper than a chain over its bytes.
    """
    if not adapter:
        return keys
    names = identity_of(adapter)[:KEY_BYTES] * (len(keys) // KEY_BYTES)
    return (int.from_bytes(keys) ^ int.from_bytes(names)).to_bytes(len(keys))
