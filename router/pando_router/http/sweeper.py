"""Time limits of many connections by one timer: a coarse clock that looks at all of them each turn.

A timer of its own for each request would cost more than the rest of its bookkeeping.
"""

import asyncio
from typing import Protocol

NEVER = float("inf")


class Limited(Protocol):
    @property
    def deadline(self) -> float:
        """On the sweeper's clock; NEVER where nothing is waited for."""

    def expire(self) -> None:
        """The deadline has passed. Sets a new one, or leaves the sweeper."""


class Sweeper:
    """Expires its members, `every_s` seconds a turn: limits hold with that precision."""

    def __init__(self, every_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._every_s = every_s
        # `soon + limit` is a deadline `limit` from now or up to a turn later: nothing is cut before
        # its time. An attribute, not a method, because every request asks for several.
        self.soon = self._loop.time() + every_s
        self._members: set[Limited] = set()
        self._timer = self._loop.call_later(every_s, self._sweep)

    def add(self, member: Limited) -> None:
        self._members.add(member)

    def discard(self, member: Limited) -> None:
        self._members.discard(member)

    def stop(self) -> None:
        self._timer.cancel()

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(self._every_s, self._sweep)
        now = self._loop.time()
        self.soon = now + self._every_s
        for member in [member for member in self._members if member.deadline <= now]:
            member.expire()
