"""Placement: which replica serves a prompt, decided and reserved in one round trip to Redis.

`Placer.place` takes an `Ask` and gives a `Placement`, whose lease counts on the chosen replica
until `prefilled` (first byte) and `release` (end) give it back or its time is over. The formula and
its units stand in `fleet/README.md`; the decision itself is `lua/place.lua`, so all routers decide
as one. What no answer waits for is queued and written in batches (`settling.py`).
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
from pando_fleet.redis.layout.constants import FULL, KEY_BYTES, Mode
from pando_fleet.redis.layout.rows import CANDIDATE, PART, PLACED, Candidate, Part, Placed
from pando_fleet.redis.scripts import Clock, time_arg
from pando_fleet.redis.wire import Line, WireScript

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
    within_s: float | None = None  # in place of the placer's `timeout_s`

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


class Placement(msgspec.Struct):
    """A request's place, and the lease that holds it."""

    lease: str
    chosen: Placed
    only: str | None = None  # as asked
    candidates: tuple[Candidate, ...] = ()  # all, as `explain` gives them, where `Ask.every`
    ledger: str = ""  # the tenant's, where its share of the tree is bounded
    is_waiting: bool = True  # for its first byte
    renewed_s: float = -inf  # or placed, by the clock of who renews

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

    `prefilled`, `renew`, `release` and `cut` return at once; what they say is in Redis a few
    milliseconds later, in the order of the calls. Where it cannot be written `failed` is told, and
    the placer is `in_doubt`; `keeper.Keeper` then makes Redis agree with it. With `every_s=None`
    nothing is written before `write` or `flush`, so that a simulation knows when.
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
        keys = PoolKeys(pool)
        leases, parts, loads = keys.leases
        self._place = partial(
            Place,
            replicas=keys.replicas,
            terms=keys.terms,
            leases=leases,
            parts=parts,
            loads=loads,
            tree_prefix=keys.tree_prefix,
        )
        self._clock = clock
        self._decide = WireScript(wire, Place)
        self._failed = failed
        self._settling = Settling(wire, keys, clock, self._write_failed, every_s)
        self._open: dict[str, Placement] = {}  # by lease; those first that were renewed longest ago
        self._now_s = -inf  # when leases were renewed last
        self.in_doubt = False  # whether Redis may have other leases of this router than it knows
        self.is_quiet = True  # nothing was asked since its keeper looked
        self.woken: Callable[[], None] = _nobody  # called ahead of the first ask after that
        self._asked: list[tuple[Ask, asyncio.Future[Placement]]] = []
        self._timeout_s = timeout_s
        self._patience: Patience | None = None

    def place(self, ask: Ask) -> Awaitable[Placement]:
        """Chooses the cheapest replica and leases it; the touch of the path there follows.

        Asks of one turn of the event loop go in one call. Raises NoReplica, PoolFull,
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
        """Every candidate's terms, without placing: cheapest first, then the full ones."""
        call = self._place(now=time_arg(self._clock), mode=Mode.EXPLAIN)
        candidates: list[bytes] = await self._decide(call, *astuple(_prompt(ask)), *ask.exclude)
        return _sorted(candidates)

    def prefilled(self, placement: Placement) -> None:
        """The first byte is here: the prefill part of the lease is released. Idempotent."""
        placement.is_waiting = False
        self._settling.put(Prefilled(placement.lease))

    def renew(self, now_s: float, lease_ms: int, *, every: bool = False) -> None:
        """Leases last so long from now: those that have used up a third of it, or all.

        Call this often; `now_s` is of any clock that never goes back. What Redis lost of a lease is
        there again.
        """
        self._now_s = now_s
        due_s = now_s if every else now_s - lease_ms / 3000
        for placement in list(takewhile(lambda one: one.renewed_s <= due_s, self._open.values())):
            self._open[placement.lease] = self._open.pop(placement.lease)
            placement.renewed_s = now_s
            self._settling.put(Renew(placement.lease, lease_ms, PART.pack_row(placement.part)))

    def release(self, placement: Placement) -> None:
        """The request ended, failed or was cancelled: the rest of the lease goes. Idempotent."""
        self._open.pop(placement.lease, None)
        self._settling.put(Release(placement.lease))

    @property
    def open(self) -> int:
        """Placements that are not released."""
        return len(self._open)

    def unknown(self, leases: Iterable[str]) -> list[str]:
        """Those of this router's `leases` in Redis that are no placement of it now."""
        return [lease for lease in leases if lease not in self._open]

    def release_unknown(self, leases: Iterable[str]) -> int:
        """Releases those that nobody holds; how many."""
        unknown = self.unknown(leases)
        for lease in unknown:
            self._settling.put(Release(lease))
        return len(unknown)

    def cut(self, placement: Placement, keys: bytes, depth: int) -> None:
        """The chosen replica holds only `depth` chunks of the path: the rest leaves its set."""
        cut = Cut(placement.owner, path=keys, depth=depth, tenant=placement.ledger)
        self._settling.put(cut, weight=len(keys))

    def write(self) -> None:
        """Sends what is queued, without waiting for answers."""
        self._settling.hurry()

    async def flush(self) -> None:
        """Returns when all that is queued has been written, or told to `failed`."""
        await self._settling.flush()

    async def settle(self, timeout_s: float) -> None:
        """As `flush`, before Redis is disconnected; what is not written in time has failed.

        Placements that nobody released are.
        """
        for placement in list(self._open.values()):
            self.release(placement)
        await self._settling.settle(timeout_s)

    def _bound(self, answer: "asyncio.Future[Placement]", limit_s: float) -> None:
        patience = self._patience
        if patience is None or patience.limit_s != limit_s:
            # Another limit for those who ask from now on; the one before ends its own waits.
            self._patience = patience = Patience(limit_s)
        patience.bound(answer)

    def _send_asks(self) -> None:
        asked = [item for item in self._asked if not item[1].done()]  # some were cancelled
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
            self.in_doubt = True  # it may have placed, or may do so later
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(type(reply)(*reply.args))  # each its own traceback
            return
        for (ask, answer), found in zip(batch, reply, strict=True):
            self._settle_ask(ask, answer, found)

    def _settle_ask(
        self, ask: Ask, answer: "asyncio.Future[Placement]", found: bytes | list[bytes] | None
    ) -> None:
        if found is None or found == FULL:
            if not answer.done():
                answer.set_exception(self._none(found))
            return
        candidates: tuple[Candidate, ...] = ()
        if isinstance(found, list):
            found, *others = found
            candidates = tuple(_sorted(others))
        placed, _ = PLACED.unpack(found)
        placement = Placement(ask.lease, placed, ask.only, candidates)
        if answer.done():  # cancelled or late: nobody else will release it
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
    """What a placer without a keeper calls."""


def _prompt(ask: Ask) -> Prompt:
    """Behind it stand the excluded replicas."""
    return Prompt(
        path=ask.keys,
        prompt_tokens=ask.prompt_tokens,
        output_tokens=ask.output_tokens,
        lease=ask.lease,
        lease_ms=ask.lease_ms,
        tie=xxh3_64_intdigest(ask.lease.encode()) & 0xFFFF,
        max_outstanding=ask.max_outstanding,
        every=int(ask.every),
        only=ask.only or "",
        excluded=len(ask.exclude),
    )


def _sorted(packed: list[bytes]) -> list[Candidate]:
    candidates = [CANDIDATE.unpack(one)[0] for one in packed]
    return sorted(candidates, key=lambda c: (c.full, c.cost_s, c.outstanding))
