"""Placement: which replica serves a prompt, decided and reserved in one round trip to Redis.

`Placer.place` takes an `Ask` and gives a `Placement`, whose lease counts on the chosen replica
until `prefilled` (first byte) and `release` (end) give it back or its time is over. The formula and
its units stand in `fleet/README.md`; the decision itself is `lua/place.lua`, so all routers decide
as one.
"""

import json
from dataclasses import dataclass
from typing import Any

from xxhash import xxh3_64_intdigest

from pando_fleet.client import FleetError, RedisClient
from pando_fleet.keys import PoolKeys
from pando_fleet.prefix import CHUNK_BYTES, KEY_BYTES
from pando_fleet.registry import FRESH_MS
from pando_fleet.scripts import Clock, Script, time_arg
from pando_fleet.tree import PrefixTree


class NoReplica(FleetError):  # noqa: N818  (a state of the fleet, not a mistake)
    """No replica of the pool is fresh, ready and allowed for this request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a request needs. `lease` is its id: asking again under it replaces the first lease."""

    keys: bytes  # packed chunk keys of the prompt, root first
    prompt_tokens: int
    output_tokens: int  # expected
    lease: str
    lease_ms: int  # the lease ends by itself after this, should the router die
    exclude: tuple[str, ...] = ()  # replicas that failed this request before
    only: str | None = None  # the one replica allowed

    def __post_init__(self) -> None:
        if len(self.keys) % KEY_BYTES:
            raise FleetError(
                f"keys must be packed {KEY_BYTES}-byte keys, not {len(self.keys)} bytes"
            )
        if self.prompt_tokens < 1 or self.output_tokens < 0 or self.lease_ms < 1 or not self.lease:
            raise FleetError(
                "an ask needs at least 1 prompt token, 0 output tokens, 1 lease_ms and a lease id: "
                f"{self.prompt_tokens=}, {self.output_tokens=}, {self.lease_ms=}, {self.lease=}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One replica's terms: `cost_s` is `wait_s + kv_wait_s + work_s * (1 + queue)`."""

    replica: str
    url: str
    incarnation: str
    matched_chunks: int
    matched_tokens: int
    backlog_tokens: int  # uncached prompt tokens leased there and not yet prefilled
    outstanding: int  # requests leased there and not yet ended
    wait_s: float
    kv_wait_s: float
    work_s: float
    queue: float  # requests of the pool waiting for their first token, per ready replica
    cost_s: float


@dataclass(frozen=True, slots=True)
class Placement:
    """A request's place, and the lease that holds it."""

    lease: str
    chosen: Candidate


class Placer:
    """Places requests of one pool. Every method raises FleetUnavailable where Redis is away."""

    def __init__(self, redis: RedisClient, pool: str, clock: Clock | None = None) -> None:
        self._pool = pool
        self._keys = PoolKeys(pool)
        self._clock = clock
        self._tree = PrefixTree(redis, pool, clock)
        self._decide = Script(redis, "clock", "tree_ops", "lease_ops", "place")
        self._prefilled = Script(redis, "lease_ops", "prefilled")
        self._release = Script(redis, "lease_ops", "release")

    async def place(self, ask: Ask) -> Placement:
        """Chooses the cheapest replica, leases it and touches the path there; one round trip.

        Raises NoReplica.
        """
        chosen: bytes | None = await self._ask("place", ask)
        if chosen is None:
            raise NoReplica(f"pool {self._pool!r} has no ready replica that this request may use")
        return Placement(lease=ask.lease, chosen=_candidate(chosen))

    async def explain(self, ask: Ask) -> list[Candidate]:
        """Every candidate's terms, cheapest first, without placing the request."""
        candidates: list[bytes] = await self._ask("explain", ask)
        return sorted(map(_candidate, candidates), key=lambda c: (c.cost_s, c.outstanding))

    async def prefilled(self, placement: Placement) -> None:
        """The first byte is here: the prefill part of the lease is released. Idempotent."""
        await self._prefilled(self._keys.leases, placement.lease)

    async def release(self, placement: Placement) -> None:
        """The request ended, failed or was cancelled: the rest of the lease goes. Idempotent."""
        await self._release(self._keys.leases, placement.lease)

    async def cut(self, placement: Placement, keys: bytes, depth: int) -> None:
        """The chosen replica holds only `depth` chunks of the path: the rest leaves its set."""
        chosen = placement.chosen
        await self._tree.cut(chosen.replica, chosen.incarnation, keys, depth)

    async def _ask(self, mode: str, ask: Ask) -> Any:
        return await self._decide(
            [self._keys.replicas, self._keys.terms, *self._keys.leases],
            time_arg(self._clock),
            mode,
            FRESH_MS,
            self._keys.tree_prefix,
            ask.keys,
            CHUNK_BYTES,
            ask.prompt_tokens,
            ask.output_tokens,
            ask.lease,
            ask.lease_ms,
            xxh3_64_intdigest(ask.lease.encode()) & 0xFFFF,
            ask.only or "",
            *ask.exclude,
        )


def _candidate(encoded: bytes) -> Candidate:
    return Candidate(**json.loads(encoded))
