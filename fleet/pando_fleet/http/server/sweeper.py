"""Enforces the time limits of many connections with one timer that checks all of them each turn.

A timer for each request would cost more than the rest of its bookkeeping.
"""

import asyncio
from typing import Protocol

NEVER = float("inf")


class Limited(Protocol):
    @property
    def deadline(self) -> float:
        """By the sweeper's clock; NEVER if there is none."""

    def expire(self) -> None:
        """Called after the deadline; must set a new one, or leave the sweeper."""


class Sweeper:
    """Expires members once every `every_s` seconds, which is the precision of their limits."""

    def __init__(self, every_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._every_s = every_s
        # `soon + limit` is a deadline in `limit` seconds or up to a turn later, so nothing expires
        # early. An attribute, not a method, because every request reads it several times.
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
