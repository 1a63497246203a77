"""Placement: which replica serves a prompt, decided and reserved in one round trip to Redis.

`Placer.place` takes an `Ask` and gives a `Placement`, whose lease counts on the chosen replica
until `prefilled` (first byte) and `release` (end) give it back or its time is over. The formula and
its units stand in `fleet/README.md`; the decision itself is `lua/place.lua`, so all routers decide
as one. What no answer waits for is queued and written in batches (`settling.py`).
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import msgspec
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from pando_fleet.client import FleetError
from pando_fleet.keys import PoolKeys
from pando_fleet.patience import Patience
from pando_fleet.prefix import CHUNK_BYTES, KEY_BYTES
from pando_fleet.registry import FRESH_MS
from pando_fleet.scripts import Clock, time_arg
from pando_fleet.settling import EVERY_S, Failed, Settling
from pando_fleet.wire import Line, WireScript

MAX_ASKS = 16
"""Prompts of one call to Redis: so long at most it answers nobody else."""

TOUCH_CHUNKS = 1024
"""Of a path touched in one operation: a longer one leaves Redis free in between."""


class NoReplica(FleetError):  # noqa: N818  (a state of the fleet, not a mistake)
    """No replica of the pool is fresh, ready and allowed for this request."""


class PoolFull(NoReplica):
    """Each replica that this request may use holds `Ask.max_outstanding` requests already."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a request needs. `lease` is its id: asking again under it replaces the first lease."""

    keys: bytes  # packed chunk keys of the prompt, root first
    prompt_tokens: int
    output_tokens: int  # expected
    lease: str
    lease_ms: int  # the lease ends by itself after this, should the router die
    exclude: tuple[str, ...] = ()  # replicas that failed this request before
    only: str | None = None  # the one replica allowed
    every: bool = False  # the placement's `candidates` are wanted, which takes Redis longer
    max_outstanding: int = 0  # requests leased at one replica, at most; 0: any number
    tenant: str = ""  # whose keys these are; they must be salted, so that nobody else has them
    tenant_share: float = 1.0  # of each replica's tree, at most; 1: no bound

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
        if self.max_outstanding < 0 or not 0 < self.tenant_share <= 1:
            raise FleetError(
                "an ask's max_outstanding is not negative and its tenant_share within 0 and 1: "
                f"{self.max_outstanding=}, {self.tenant_share=}"
            )
        if self.tenant_share < 1 and not self.tenant:
            raise FleetError(f"a tenant_share needs a tenant: {self.tenant_share=}")


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One replica's terms:
    `cost_s` is `wait_s + kv_wait_s + work_s * (1 + queue + coming) + pool_s + evict_s`."""

    replica: str
    url: str
    incarnation: str
    matched_chunks: int
    matched_tokens: int
    backlog_tokens: int  # work leased there and not yet prefilled: uncached tokens by their context
    outstanding: int  # requests leased there and not yet ended
    capacity_chunks: int  # what its tree may hold
    capacity_tokens: int  # of its KV pool; 0 where it does not say
    pinned_tokens: int  # of those, held by running requests
    wait_s: float
    kv_wait_s: float
    work_s: float
    queue: float  # requests that wait there for their first token
    coming: float  # requests that come there while one comes to each replica, in the mean
    pool_s: float  # that the pool loses by the prompt's work where requests wait at each replica
    evict_s: float  # that it will take to compute again what the prompt evicts there
    cost_s: float
    full: bool  # it has all the requests that it may have, and is not chosen


class Placement(msgspec.Struct):
    """A request's place, and the lease that holds it."""

    lease: str
    chosen: Candidate
    most_chunks: int = 0  # that any candidate held of the prompt
    holder: str = ""  # who held them
    holder_full: bool = False  # and had all the requests that it may have
    only: str | None = None  # as asked
    candidates: tuple[Candidate, ...] = ()  # all, as `explain` gives them, where `Ask.every`
    ledger: str = ""  # the tenant's, where its share of the tree is bounded


class Placer:
    """Places requests of one pool.

    `prefilled`, `renew`, `release` and `cut` return at once; what they say is in Redis a few
    milliseconds later, in the order of the calls. Where it cannot be written `failed` is told, and
    the lease ends by itself. With `every_s=None` nothing is written before `write` or `flush`, so
    that a simulation knows when.
    """

    def __init__(
        self,
        wire: Line,
        pool: str,
        clock: Clock | None = None,
        failed: Failed | None = None,
        every_s: float | None = EVERY_S,
        timeout_s: Callable[[], float] | None = None,
    ) -> None:
        """`timeout_s` gives what a placement may take now; None: as long as the wire allows."""
        self._pool = pool
        self._wire = wire
        self._every_s = every_s
        self._keys = PoolKeys(pool)
        self._place_keys = [self._keys.replicas, self._keys.terms, *self._keys.leases]
        self._clock = clock
        self._decide = WireScript(wire, "clock", "tree_ops", "lease_ops", "fleet_ops", "place")
        self._settling = Settling(wire, self._keys, clock, failed, every_s)
        self._asked: list[tuple[Ask, asyncio.Future[Placement]]] = []
        self._timeout_s = timeout_s
        self._patience: Patience | None = None

    async def place(self, ask: Ask) -> Placement:
        """Chooses the cheapest replica and leases it; the touch of the path there follows.

        Asks of one turn of the event loop go in one call. Raises NoReplica, PoolFull,
        FleetUnavailable, and TimeoutError after `timeout_s`.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Placement] = loop.create_future()
        self._asked.append((ask, answer))
        if len(self._asked) == 1:
            loop.call_soon(self._send_asks)
        if self._timeout_s is not None:
            self._bound(answer, self._timeout_s())
        return await answer

    async def explain(self, ask: Ask) -> list[Candidate]:
        """Every candidate's terms, without placing: cheapest first, then the full ones."""
        candidates: list[bytes] = await self._decide(
            self._place_keys, *self._head("explain"), *_encode(ask)
        )
        return _sorted(candidates)

    def prefilled(self, placement: Placement) -> None:
        """The first byte is here: the prefill part of the lease is released. Idempotent."""
        self._settling.put("prefilled", placement.lease)

    def renew(self, placement: Placement, lease_ms: int) -> None:
        """The request goes on: its lease, if it has not ended, lasts so long from now."""
        self._settling.put("renew", placement.lease, lease_ms)

    def release(self, placement: Placement) -> None:
        """The request ended, failed or was cancelled: the rest of the lease goes. Idempotent."""
        self._settling.put("release", placement.lease)

    def cut(self, placement: Placement, keys: bytes, depth: int) -> None:
        """The chosen replica holds only `depth` chunks of the path: the rest leaves its set."""
        owner = _owner(placement.chosen)
        self._settling.put("cut", owner, keys, depth, placement.ledger, weight=len(keys))

    def write(self) -> None:
        """Sends what is queued, without waiting for answers."""
        self._settling.hurry()

    async def flush(self) -> None:
        """Returns when all that is queued has been written, or told to `failed`."""
        await self._settling.flush()

    async def settle(self, timeout_s: float) -> None:
        """As `flush`, before Redis is disconnected; what is not written in time has failed."""
        await self._settling.settle(timeout_s)

    def _bound(self, answer: "asyncio.Future[Placement]", limit_s: float) -> None:
        patience = self._patience
        if patience is None or patience.limit_s != limit_s:
            # Another limit for those who ask from now on; the one before ends its own waits.
            self._patience = patience = Patience(limit_s)
        patience.bound(answer)

    def _head(self, mode: str) -> tuple[str | int, ...]:
        return time_arg(self._clock), mode, FRESH_MS, self._keys.tree_prefix, CHUNK_BYTES

    def _send_asks(self) -> None:
        asked = [item for item in self._asked if not item[1].done()]  # some were cancelled
        self._asked = []
        if self._every_s is not None:
            self._settling.hurry()
        for first in range(0, len(asked), MAX_ASKS):
            batch = asked[first : first + MAX_ASKS]
            args: list[Any] = [*self._head("place")]
            for ask, _ in batch:
                args += _encode(ask)

            def answered(reply: object, batch: Any = batch) -> None:
                self._answered(batch, reply)

            try:
                self._decide.send(self._place_keys, args, answered)
            except FleetError as error:
                self._answered(batch, error)
        self._wire.flush()

    def _answered(self, batch: list[tuple[Ask, asyncio.Future[Placement]]], reply: Any) -> None:
        if isinstance(reply, FleetError):
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(type(reply)(*reply.args))  # each its own traceback
            return
        for (ask, answer), found in zip(batch, reply, strict=True):
            self._settle_ask(ask, answer, found)

    def _settle_ask(
        self, ask: Ask, answer: "asyncio.Future[Placement]", found: bytes | list[bytes] | None
    ) -> None:
        if found is None or found == b"full":
            if not answer.done():
                answer.set_exception(self._none(found))
            return
        if isinstance(found, list):
            placement = _placement(ask, found[0])
            placement.candidates = tuple(_sorted(found[1:]))
        else:
            placement = _placement(ask, found)
        if answer.done():  # cancelled or late: nobody else will release it
            self.release(placement)
            return
        self._touch(ask, placement)
        answer.set_result(placement)

    def _none(self, found: object) -> NoReplica:
        if found is None:
            return NoReplica(f"pool {self._pool!r} has no ready replica that this request may use")
        return PoolFull(f"every replica of pool {self._pool!r} has as many requests as it may")

    def _touch(self, ask: Ask, placement: Placement) -> None:
        chosen = placement.chosen
        capacity = share = chosen.capacity_chunks
        if ask.tenant_share < 1:
            placement.ledger = xxh3_64_hexdigest(ask.tenant.encode())
            share = max(1, int(ask.tenant_share * capacity))
        owner, held = _owner(chosen), chosen.matched_chunks
        for start in range(0, len(ask.keys) // KEY_BYTES, TOUCH_CHUNKS):
            path = ask.keys[: KEY_BYTES * (start + TOUCH_CHUNKS)]
            guess = max(start, min(held, len(path) // KEY_BYTES))
            self._settling.put(
                "touch", owner, path, guess, capacity, placement.ledger, share, weight=len(path)
            )


def _owner(chosen: Candidate) -> str:
    return f"{chosen.incarnation}:{chosen.replica}"


def _encode(ask: Ask) -> tuple[str | bytes | int, ...]:
    return (
        ask.keys,
        ask.prompt_tokens,
        ask.output_tokens,
        ask.lease,
        ask.lease_ms,
        xxh3_64_intdigest(ask.lease.encode()) & 0xFFFF,
        ask.max_outstanding,
        int(ask.every),
        ask.only or "",
        len(ask.exclude),
        *ask.exclude,
    )


_NUMBERS = struct.Struct(">18d")
_MOST_AT = 8 * 16  # the last two of them
_MOST = struct.Struct(">dd")


def _sorted(candidates: list[bytes]) -> list[Candidate]:
    return sorted(map(_candidate, candidates), key=lambda c: (c.full, c.cost_s, c.outstanding))


def _placement(ask: Ask, packed: bytes) -> Placement:
    most, is_full = _MOST.unpack_from(packed, _MOST_AT)
    holder = packed[packed.rindex(b"\0", 0, -1) + 1 : -1].decode()
    return Placement(ask.lease, _candidate(packed), int(most), holder, is_full > 0, ask.only)


def _candidate(packed: bytes) -> Candidate:
    numbers = _NUMBERS.unpack_from(packed)
    chunks, matched, backlog, outstanding, capacity, capacity_tokens, pinned = numbers[:7]
    wait, kv_wait, work, queue, coming, pool, evict, cost, full, *_ = numbers[7:]
    replica, url, incarnation, *_ = packed[_NUMBERS.size :].decode().split("\0")
    return Candidate(
        replica=replica,
        url=url,
        incarnation=incarnation,
        matched_chunks=int(chunks),
        matched_tokens=int(matched),
        backlog_tokens=int(backlog),
        outstanding=int(outstanding),
        capacity_chunks=int(capacity),
        capacity_tokens=int(capacity_tokens),
        pinned_tokens=int(pinned),
        wait_s=wait,
        kv_wait_s=kv_wait,
        work_s=work,
        queue=queue,
        coming=coming,
        pool_s=pool,
        evict_s=evict,
        cost_s=cost,
        full=full > 0,
    )
