"""Placement: chooses and reserves a replica for a prompt in one round trip to Redis.

`Placer.place` takes an `Ask` and returns a `Placement`. Its lease counts on the chosen replica
until `prefilled` (first byte) and `release` (end) free it, or it expires. `lua/placement/place.lua`
decides, so that all routers decide alike; `fleet/README.md` has the formula and its units. Writes
that nobody waits for are queued and sent in batches (`settling.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import takewhile
from math import inf
from typing import Any

import msgspec
from msgspec.structs import astuple
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from pando_fleet.patience import Patience
from pando_fleet.placement.settling import EVERY_S, Failed, Settling
from pando_fleet.redis.client import FleetError
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import Cut, Place, Prefilled, Prompt, Release, Renew, Touch
from pando_fleet.redis.layout.constants import FULL, HELD_BACK, KEY_BYTES, Mode
from pando_fleet.redis.layout.rows import (
    CANDIDATE,
    CROWDED,
    PART,
    PLACED,
    Candidate,
    Crowded,
    Part,
    Placed,
)
from pando_fleet.redis.scripts import Clock, time_arg
from pando_fleet.redis.wire import Line, WireScript
from pando_fleet.registry.adapter import short_key

MAX_ASKS = 16
"""Prompts per call to Redis, which cannot answer others meanwhile."""

TOUCH_CHUNKS = 1024
"""Bytes of path per touch; a longer path is touched in several, so that Redis can answer others."""


class NoReplica(FleetError):  # noqa: N818  (a state of the fleet, not a mistake)
    """No replica of the pool is fresh, ready and allowed for this request."""


class PoolFull(NoReplica):
    """Each replica that this request may use holds `Ask.max_outstanding` requests already."""


class PoolCrowded(NoReplica):
    """The working set of the pool's sessions has no room for this request's session."""

    def __init__(self, message: str, crowded: Crowded) -> None:
        super().__init__(message, crowded)
        self.crowded = crowded


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a request needs. `lease` is its id: asking again with the same id replaces the lease."""

    keys: bytes  # packed chunk keys of the prompt, root first
    prompt_tokens: int
    output_tokens: int  # expected
    lease: str
    lease_ms: int  # after which the lease expires if the router dies
    exclude: tuple[str, ...] = ()  # replicas that have failed this request
    only: str | None = None  # the only replica allowed
    adapter: str = ""  # key of the LoRA adapter that it needs
    every: bool = False  # return all `candidates`, which takes Redis longer
    bounds_sessions: bool = False  # count the sessions' working set
    may_wait: bool = True  # and raise PoolCrowded if it has no room for this one's session
    session: bytes = b""  # its name, which counts where its prompt extends no session's
    max_outstanding: int = 0  # most requests leased at one replica; 0: no limit
    tenant: str = ""  # owner of the keys, which must be salted so that no other tenant has them
    tenant_share: float = 1.0  # largest share of each replica's tree; 1: no limit
    within_s: float | None = None  # overrides the placer's `timeout_s`

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
                "an ask's max_outstanding must not be negative, its tenant_share within 0 and 1: "
                f"{self.max_outstanding=}, {self.tenant_share=}"
            )
        if self.tenant_share < 1 and not self.tenant:
            raise FleetError(f"a tenant_share requires a tenant: {self.tenant_share=}")


class Placement(msgspec.Struct):
    """A request's replica, and the lease that reserves it."""

    lease: str
    chosen: Placed
    only: str | None = None  # from the ask
    candidates: tuple[Candidate, ...] = ()  # all, as `explain` returns them, if `Ask.every`
    ledger: str = ""  # the tenant's, if its share of the tree is limited
    is_waiting: bool = True  # for the first byte
    renewed_s: float = -inf  # renewed or placed, by the clock passed to `renew`

    @property
    def owner(self) -> str:
        return f"{self.chosen.incarnation}:{self.chosen.replica}"

    @property
    def part(self) -> Part:
        if self.is_waiting:
            return Part(self.chosen.work, self.chosen.room, 1.0, self.owner)
        return Part(0.0, 0.0, 0.0, self.owner)


class Placer:
    """Places requests of one pool, and holds its placements until they are released.

    `prefilled`, `renew`, `release` and `cut` return at once and reach Redis a few milliseconds
    later, in the order of the calls. If a write fails, `failed` is called, and the placer is
    `in_doubt`; then `keeper.Keeper` reconciles Redis with it. With `every_s=None` nothing is
    written before `write` or `flush`, so that a simulation controls the time.
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
        """`timeout_s` returns the time limit of a placement; None: the wire's limit only."""
        self._pool = pool
        self._wire = wire
        self._every_s = every_s
        keys = PoolKeys(pool)
        leases, parts, loads = keys.leases
        self._place = partial(
            Place,
            replicas=keys.replicas,
            terms=keys.terms,
            adapters=keys.adapters,
            leases=leases,
            parts=parts,
            loads=loads,
            sessions=keys.sessions,
            tree_prefix=keys.tree_prefix,
        )
        self._clock = clock
        self._decide = WireScript(wire, Place)
        self._failed = failed
        self._settling = Settling(wire, keys, clock, self._write_failed, every_s)
        self._open: dict[str, Placement] = {}  # by lease; in the order of renewal
        self._now_s = -inf  # time of the last renewal
        self.in_doubt = False  # whether Redis may have leases of this router that it does not know
        self.is_quiet = True  # no placement since the keeper's last look
        self.woken: Callable[[], None] = _nobody  # called before the next placement after that
        self._asked: list[tuple[Ask, asyncio.Future[Placement]]] = []
        self._timeout_s = timeout_s
        self._patience: Patience | None = None

    def place(self, ask: Ask) -> Awaitable[Placement]:
        """Chooses and leases the cheapest replica; the path there is touched afterwards.

        Asks of one turn of the event loop are sent together. Raises NoReplica, PoolFull,
        FleetUnavailable, and TimeoutError after `timeout_s` or `Ask.within_s`.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Placement] = loop.create_future()
        self._asked.append((ask, answer))
        if len(self._asked) == 1:
            loop.call_soon(self._send_asks)
        if ask.within_s is not None:
            Patience(ask.within_s).bound(answer)
        elif self._timeout_s is not None:
            self._bound(answer, self._timeout_s())
        return answer

    async def explain(self, ask: Ask) -> list[Candidate]:
        """The terms of every candidate, without placing: the cheapest first, full ones last."""
        call = self._place(now=time_arg(self._clock), mode=Mode.EXPLAIN)
        candidates: list[bytes] = await self._decide(call, *astuple(_prompt(ask)), *ask.exclude)
        return _sorted(candidates)

    async def crowd(self, ask: Ask) -> Crowded | None:
        """What the ask's session would wait for, without placing; None if for nothing."""
        call = self._place(now=time_arg(self._clock), mode=Mode.CROWD)
        found: list[bytes] = await self._decide(call, *astuple(_prompt(ask)), *ask.exclude)
        return CROWDED.unpack(found[0])[0] if found else None

    def prefilled(self, placement: Placement) -> None:
        """The first byte has arrived: ends the lease's prefill reservation. Idempotent."""
        placement.is_waiting = False
        self._settling.put(Prefilled(placement.lease))

    def renew(self, now_s: float, lease_ms: int, *, every: bool = False) -> None:
        """Extends leases to `lease_ms` from now: those that have used a third of it, or `every`
        one.

        Call it often; `now_s` is of any monotonic clock. A renewal also restores a lease that Redis
        has lost.
        """
        self._now_s = now_s
        due_s = now_s if every else now_s - lease_ms / 3000
        for placement in list(takewhile(lambda one: one.renewed_s <= due_s, self._open.values())):
            self._open[placement.lease] = self._open.pop(placement.lease)
            placement.renewed_s = now_s
            self._settling.put(Renew(placement.lease, lease_ms, PART.pack_row(placement.part)))

    def release(self, placement: Placement) -> None:
        """The request ended, failed or was cancelled: ends the lease. Idempotent."""
        self._open.pop(placement.lease, None)
        self._settling.put(Release(placement.lease))

    @property
    def open(self) -> int:
        """The number of placements that are not released."""
        return len(self._open)

    def unknown(self, leases: Iterable[str]) -> list[str]:
        """Those of this router's `leases` in Redis that are not current placements."""
        return [lease for lease in leases if lease not in self._open]

    def release_unknown(self, leases: Iterable[str]) -> int:
        """Releases the leases that nobody holds; returns their number."""
        unknown = self.unknown(leases)
        for lease in unknown:
            self._settling.put(Release(lease))
        return len(unknown)

    def cut(self, placement: Placement, keys: bytes, depth: int) -> None:
        """The chosen replica holds only `depth` chunks of the path: removes the rest."""
        cut = Cut(placement.owner, path=keys, depth=depth, tenant=placement.ledger)
        self._settling.put(cut, weight=len(keys))

    def write(self) -> None:
        """Sends the queue, without waiting for answers."""
        self._settling.hurry()

    async def flush(self) -> None:
        """Returns when everything queued now is written, or reported to `failed`."""
        await self._settling.flush()

    async def settle(self, timeout_s: float) -> None:
        """Like `flush`, before Redis is disconnected; what is not written in time counts as failed.

        Releases all open placements first.
        """
        for placement in list(self._open.values()):
            self.release(placement)
        await self._settling.settle(timeout_s)

    def _bound(self, answer: "asyncio.Future[Placement]", limit_s: float) -> None:
        patience = self._patience
        if patience is None or patience.limit_s != limit_s:
            # Later asks have the new limit; the earlier Patience still ends its own waits.
            self._patience = patience = Patience(limit_s)
        patience.bound(answer)

    def _send_asks(self) -> None:
        asked = [item for item in self._asked if not item[1].done()]  # some are cancelled
        self._asked = []
        if self.is_quiet:
            self.is_quiet = False
            self.woken()
        if self._every_s is not None:
            self._settling.hurry()
        for first in range(0, len(asked), MAX_ASKS):
            batch = asked[first : first + MAX_ASKS]
            call = self._place(now=time_arg(self._clock), mode=Mode.PLACE)
            prompts: list[str | bytes | int] = []
            for ask, _ in batch:
                prompts += astuple(_prompt(ask))
                prompts += ask.exclude

            def answered(reply: object, batch: Any = batch) -> None:
                self._answered(batch, reply)

            try:
                self._decide.send(call, prompts, answered)
            except FleetError as error:
                self._answered(batch, error)
        self._wire.flush()

    def _answered(self, batch: list[tuple[Ask, asyncio.Future[Placement]]], reply: Any) -> None:
        if isinstance(reply, FleetError):
            self.in_doubt = True  # it may have placed, or may still do so
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(type(reply)(*reply.args))  # a separate traceback for each
            return
        for (ask, answer), found in zip(batch, reply, strict=True):
            self._settle_ask(ask, answer, found)

    def _settle_ask(
        self, ask: Ask, answer: "asyncio.Future[Placement]", found: bytes | list[bytes] | None
    ) -> None:
        is_held_back = isinstance(found, list) and found[0] == HELD_BACK
        if found is None or found == FULL or is_held_back:
            if not answer.done():
                answer.set_exception(self._none(found))
            return
        candidates: tuple[Candidate, ...] = ()
        if isinstance(found, list):
            found, *others = found
            candidates = tuple(_sorted(others))
        placed, _ = PLACED.unpack(found)
        placement = Placement(ask.lease, placed, ask.only, candidates)
        if answer.done():  # cancelled or late, so nobody else will release it
            self.release(placement)
            return
        placement.renewed_s = self._now_s
        self._open[placement.lease] = placement
        self._touch(ask, placement)
        answer.set_result(placement)

    def _write_failed(self, reason: str, count: int) -> None:
        self.in_doubt = True
        if self._failed is not None:
            self._failed(reason, count)

    def _none(self, found: bytes | list[bytes] | None) -> NoReplica:
        if isinstance(found, list):
            crowded, _ = CROWDED.unpack(found[1])
            return PoolCrowded(
                f"the sessions of pool {self._pool!r} hold {crowded.working_set_tokens:,} of"
                f" {crowded.room_tokens:,} tokens",
                crowded,
            )
        if found is None:
            return NoReplica(f"pool {self._pool!r} has no ready replica that this request may use")
        return PoolFull(f"every replica of pool {self._pool!r} has as many requests as it may")

    def _touch(self, ask: Ask, placement: Placement) -> None:
        chosen = placement.chosen
        capacity = share = chosen.capacity_chunks
        if ask.tenant_share < 1:
            placement.ledger = xxh3_64_hexdigest(ask.tenant.encode())
            share = max(1, int(ask.tenant_share * capacity))
        owner, held = placement.owner, chosen.matched_chunks
        for start in range(0, len(ask.keys) // KEY_BYTES, TOUCH_CHUNKS):
            path = ask.keys[: KEY_BYTES * (start + TOUCH_CHUNKS)]
            guess = max(start, min(held, len(path) // KEY_BYTES))
            touch = Touch(
                owner=owner,
                path=path,
                guess=guess,
                capacity=capacity,
                tenant=placement.ledger,
                share=share,
            )
            self._settling.put(touch, weight=len(path))


def _nobody() -> None:
    """The default of `woken`."""


def _prompt(ask: Ask) -> Prompt:
    """The names of the excluded replicas follow it."""
    return Prompt(
        path=ask.keys,
        prompt_tokens=ask.prompt_tokens,
        output_tokens=ask.output_tokens,
        lease=ask.lease,
        lease_ms=ask.lease_ms,
        tie=xxh3_64_intdigest(ask.lease.encode()) & 0xFFFF,
        max_outstanding=ask.max_outstanding,
        every=int(ask.every),
        bounds_sessions=int(ask.bounds_sessions),
        may_wait=int(ask.may_wait),
        session=xxh3_64_hexdigest(f"{ask.tenant}/".encode() + ask.session) if ask.session else "",
        only=ask.only or "",
        adapter=short_key(ask.adapter) if ask.adapter else "",
        excluded=len(ask.exclude),
    )


def _sorted(packed: list[bytes]) -> list[Candidate]:
    candidates = [CANDIDATE.unpack(one)[0] for one in packed]
    return sorted(candidates, key=lambda c: (c.full, c.cost_s, c.outstanding))
