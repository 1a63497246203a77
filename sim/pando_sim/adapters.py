"""The LoRA adapters of a simulated pool, and which request needs which.

A pool's adapters have numbers, in the order of their popularity. Traces name none, so each
conversation is given one, or each request of a trace without conversations: adapter `n` with a
probability proportional to `1 / n ** exponent` (Zipf's law).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate

import numpy as np

from pando_fleet.placement.prefix import KEY_BYTES
from pando_fleet.registry.adapter import Adapter
from pando_sim.request import Request

IDENTITY_BYTES = 16


def names(count: int) -> tuple[str, ...]:
    return tuple(f"adapter-{number}" for number in range(1, count + 1))


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
    name = np.frombuffer(identity_of(adapter)[:KEY_BYTES], dtype=np.uint64)
    return (np.frombuffer(keys, dtype=np.uint64) ^ name).tobytes()


def with_adapters(
    requests: Iterable[Request], count: int, exponent: float, seed: int
) -> Iterator[Request]:
    """The requests, each with one of `count` adapters; equal seeds give equal ones."""
    known = names(count)
    sums = list(accumulate(1 / number**exponent for number in range(1, count + 1)))
    for request in requests:
        who = request.session or request.number
        drawn = blake2b(f"{seed} {who}".encode(), digest_size=7).digest()
        share = int.from_bytes(drawn) / 2 ** (8 * len(drawn))
        yield replace(request, adapter=known[bisect_left(sums, share * sums[-1])])
