"""A small pool with the test's clock: replicas that send heartbeats, and a placer."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from pando_fleet.placement.placer import Ask, Placement, Placer
from pando_fleet.placement.prefix import chunk_keys
from pando_fleet.placement.tree import PrefixTree
from pando_fleet.redis import client
from pando_fleet.redis.client import RedisClient, connect
from pando_fleet.redis.layout.rows import Candidate
from pando_fleet.redis.wire import Wire, connection
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from tests.waiting import PATIENCE_S

POOL = "llama"
BEAT = Heartbeat(
    replica="",
    incarnation="1",
    url="",
    model="llama",
    state=ReplicaState.READY,
    capacity_tokens=100_000,
    max_request_tokens=8_192,
    prefill_tokens_per_s=1_000.0,
    decode_tokens_per_s=100.0,
    release_tokens_per_s=500.0,
    bytes_per_token=4.0,
)


def path(text: str, chunks: int) -> bytes:
    """Keys of a prompt of `chunks` chunks that starts with `text`, 64 tokens each."""
    return chunk_keys(text.encode().ljust(256 * chunks, b"."), seed=0)


class World:
    """`now_ms` changes only when the test changes it."""

    def __init__(self, redis: RedisClient) -> None:
        self.now_ms = 1_800_000_000_000
        self.redis = redis
        self.registry = Registry(redis, self.clock)
        self.wire = Wire(redis)
        self.placer = Placer(self.wire, POOL, self.clock, self._write_failed, every_s=None)
        self.tree = PrefixTree(redis, POOL, self.clock)
        self._leases = itertools.count()

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> "AsyncIterator[World]":
        """A world on an emptied server."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (client, connection):  # on a busy machine a server may be late
                patch.setattr(module, "TIMEOUT_S", PATIENCE_S)
            redis = connect(url)
            await redis.flushall()
            world = cls(redis)
            try:
                yield world
            finally:
                await world.wire.aclose()
                await redis.aclose()

    def _write_failed(self, reason: str, count: int) -> None:
        raise AssertionError(f"{count} writes were lost: {reason}")

    def clock(self) -> int:
        return self.now_ms

    async def beat(self, *replicas: str, **fields: Any) -> None:
        for name in replicas:
            beat = replace(BEAT, replica=name, url=f"http://{name}:8000", **fields)
            await self.registry.beat(POOL, beat)

    def ask(self, keys: bytes = b"", prompt_tokens: int = 1_000, **fields: Any) -> Ask:
        values = {"output_tokens": 100, "lease": f"lease-{next(self._leases)}", "lease_ms": 60_000}
        return Ask(keys=keys, prompt_tokens=prompt_tokens, **{**values, **fields})

    async def place(
        self, keys: bytes = b"", prompt_tokens: int = 1_000, **fields: Any
    ) -> Placement:
        """Places a request and writes what follows from it."""
        placement = await self.placer.place(self.ask(keys, prompt_tokens, **fields))
        await self.placer.flush()
        return placement

    async def prefilled(self, placement: Placement) -> None:
        self.placer.prefilled(placement)
        await self.placer.flush()

    async def renew(self, lease_ms: int) -> None:
        """Renews all leases that were not released."""
        self.placer.renew(self.now_ms / 1000, lease_ms, every=True)
        await self.placer.flush()

    async def release(self, placement: Placement) -> None:
        self.placer.release(placement)
        await self.placer.flush()

    async def terms(self, keys: bytes = b"", prompt_tokens: int = 1_000) -> dict[str, Candidate]:
        """Every candidate's terms by name."""
        return {c.replica: c for c in await self.placer.explain(self.ask(keys, prompt_tokens))}
