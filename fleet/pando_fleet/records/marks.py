"""Marks: the operator's orders to routers about one replica, and their outcome.

`drain`: place nothing new there. `warm`: place nothing there yet, and first send it the hottest
prefixes as prefills. `hand_off`: let other replicas compute the hot prefixes that only this one
holds. One router performs a warming or hand-off: it claims the mark, spends at most the budget of
prompt tokens, and reports what it did. A claim that is not renewed expires, so that another router
continues where a dead one stopped. `fleet/README.md` has the contract.
"""

from dataclasses import dataclass, replace

import msgspec

from pando_fleet.redis import misfits
from pando_fleet.redis.client import FleetError, RedisClient, fleet_errors
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout import calls
from pando_fleet.redis.layout.constants import CLAIM_MS, MarkKind, MarkState
from pando_fleet.redis.scripts import Clock, Script, time_arg

__all__ = ["CLAIM_MS", "Mark", "MarkKind", "MarkState", "Marks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    kind: MarkKind
    replica: str
    budget_tokens: int  # prompt tokens that may be computed; 0 for a drain
    state: MarkState
    router: str  # the router that claimed it; empty before
    tokens: int  # computed so far
    prefixes: int  # sent so far
    reason: str
    left_ms: int = 0  # until the mark expires, done or not; negative after that

    @property
    def is_over(self) -> bool:
        return self.left_ms <= 0 or self.state in (MarkState.DONE, MarkState.SKIPPED)


_MARK = msgspec.json.Decoder(Mark)


class Marks:
    """The marks of one pool. Every method raises FleetUnavailable if Redis is away."""

    def __init__(self, redis: RedisClient, pool: str, clock: Clock | None = None) -> None:
        self._redis = redis
        self._keys = PoolKeys(pool)
        self._clock = clock
        self._set = Script(redis, calls.SetMark)
        self._claim = Script(redis, calls.ClaimMark)
        self._report = Script(redis, calls.ReportMark)
        self._list = Script(redis, calls.ListMarks)

    async def set(
        self, kind: MarkKind, replica: str, *, lasts_ms: int, budget_tokens: int = 0
    ) -> bool:
        """Marks the replica from now on. Returns False if a mark of this kind is still active
        there.

        A drain mark is renewed instead. Raises FleetError for an invalid time or budget.
        """
        if lasts_ms < 1 or not replica or (budget_tokens < 1) is not (kind is MarkKind.DRAIN):
            raise FleetError(
                "a mark needs a replica, at least 1 ms and, unless it drains, at least 1 token: "
                f"{kind=!s}, {replica=}, {lasts_ms=}, {budget_tokens=}"
            )
        answer = await self._set(
            calls.SetMark(
                marks=self._keys.marks,
                terms=self._keys.terms,
                now=time_arg(self._clock),
                kind=kind,
                replica=replica,
                budget_tokens=budget_tokens,
                lasts_ms=lasts_ms,
            )
        )
        return bool(answer)

    async def clear(self, kind: MarkKind, replica: str) -> None:
        """Removes a mark; its replica takes requests again from its next heartbeat on."""
        with fleet_errors():
            await self._redis.hdel(self._keys.marks, f"{kind}:{replica}")

    async def all(self) -> list[Mark]:
        """Every mark, including those that ended in the last 10 minutes; by replica and kind."""
        rows = await self._list(calls.ListMarks(marks=self._keys.marks, now=time_arg(self._clock)))
        found = [mark for row in rows if (mark := self._mark(*row)) is not None]
        return sorted(found, key=lambda mark: (mark.replica, mark.kind))

    async def claim(self, mark: Mark, router: str) -> Mark | None:
        """Claims the mark for this router for CLAIM_MS; None if it is over or another router's."""
        row = await self._claim(
            calls.ClaimMark(
                marks=self._keys.marks,
                now=time_arg(self._clock),
                kind=mark.kind,
                replica=mark.replica,
                router=router,
            )
        )
        return self._mark(f"{mark.kind}:{mark.replica}".encode(), *row) if row else None

    async def report(
        self,
        mark: Mark,
        *,
        tokens: int = 0,
        prefixes: int = 0,
        state: MarkState = MarkState.CLAIMED,
        reason: str = "",
    ) -> bool:
        """Adds to the progress of the claiming router (`mark.router`), and renews its claim.

        Returns False if the router no longer has the claim; then it must stop.
        """
        answer = await self._report(
            calls.ReportMark(
                marks=self._keys.marks,
                now=time_arg(self._clock),
                kind=mark.kind,
                replica=mark.replica,
                router=mark.router,
                tokens=tokens,
                prefixes=prefixes,
                state=state,
                reason=reason,
            )
        )
        return bool(answer)

    def _mark(self, name: bytes, left_ms: int | None, row: bytes) -> Mark | None:
        sender = f"{self._keys.pool}/{name.decode(errors='replace')}"
        mark = misfits.decode("mark", sender, row, _MARK)
        if mark is None:
            return None
        if left_ms is None:
            misfits.skip("mark", sender, "a time or count is not a number")
            return None
        return replace(mark, left_ms=left_ms)
