"""Prompts as chains of chunk keys: what the prefix tree stores instead of text.

A prompt becomes canonical bytes (`pando_fleet.canonical`), and `chunk_keys` names each of their
full chunks by a 64-bit hash of everything up to its end. Two prompts with the same seed share keys
exactly as far as they share bytes, so a chain of keys is a path in a radix tree, and no text leaves
the router.
"""

import struct
from functools import lru_cache

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from pando_fleet.canonical import (
    PrefixError,
    chat_bytes,
    completion_bytes,
    messages_bytes,
    pair_bytes,
    responses_bytes,
    seen_bytes,
    tools_bytes,
)
from pando_fleet.redis.layout.constants import CHUNK_BYTES, KEY_BYTES, MAX_CHUNKS

__all__ = [
    "CHUNK_BYTES",
    "KEY_BYTES",
    "MAX_CHUNKS",
    "PrefixError",
    "chat_bytes",
    "chunk_keys",
    "completion_bytes",
    "messages_bytes",
    "pair_bytes",
    "responses_bytes",
    "seed",
    "seen_bytes",
    "tools_bytes",
]


@lru_cache(maxsize=1024)
def seed(model: str, adapter_key: str = "", salt: str = "", request_salt: str = "") -> int:
    """The start of every chain of one namespace: 64 bits of the model, the adapter's weights, and
    the salts of the tenant and the request. No combination of values can imitate another one.

    By its key an adapter shares its cache under all its names, and weights that replace others
    under one name share nothing with these (`pando_fleet.registry.adapter`)."""
    parts = [model.encode(), adapter_key.encode(), salt.encode()]
    if request_salt:
        parts.append(request_salt.encode())
    return xxh3_64_intdigest(b"\xff".join(parts))


def chunk_keys(data: bytes, seed: int, chunk_bytes: int = CHUNK_BYTES) -> bytes:
    """Packed big-endian 8-byte keys of every full chunk: h_i = xxh3(h_{i-1} || chunk_i).

    The root is first. A last chunk that is not full has no key, and neither has anything beyond
    MAX_CHUNKS.
    """
    chunks = min(len(data) // chunk_bytes, MAX_CHUNKS)
    key = seed.to_bytes(KEY_BYTES, "big")
    digest = xxh3_64_digest
    found = struct.iter_unpack(f"{chunk_bytes}s", data[: chunks * chunk_bytes])
    return b"".join([key := digest(key + chunk) for (chunk,) in found])
