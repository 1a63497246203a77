"""Calls to replicas, and how each went. Times are of one monotonic clock, in seconds.

Repeating a call does no harm: a replica that has the weights already only says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

SETTLE_S = 5.0
"""After a call, a replica's heartbeats may be older than its answer for at most this time."""

LOAD_S = 600.0
"""Time limit of a load: a replica may fetch the adapter from a hub."""

LONGEST_DELAY_S = 300.0
_MOST_DOUBLINGS = 6


class CallTarget(NamedTuple):
    """One adapter at one start of one replica."""

    replica: str
    incarnation: str
    adapter: str


@dataclass(frozen=True, slots=True)
class Load:
    """Load an adapter, or replace the one of the same name."""

    target: CallTarget
    url: str
    token: str = field(repr=False)  # that its admin endpoints want
    source: str
    pin: bool


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload an adapter, after its requests."""

    target: CallTarget
    url: str
    token: str = field(repr=False)


Call = Load | Unload


class Outcome(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The last call for one target."""

    call: Call
    outcome: Outcome = Outcome.RUNNING
    at: float = 0.0  # when it began, or ended
    count: int = 1  # equal calls in a row, this one included
    identity: str = ""  # of the weights that a replica loaded
    error: str = ""  # why it failed; while it runs, why the equal call before it did

    @property
    def next_at(self) -> float:
        """When the same call may be made again."""
        return self.at + delay_s(self.count)

    def ended(self, at: float, *, identity: str = "", error: str = "") -> "Attempt":
        outcome = Outcome.FAILED if error else Outcome.DONE
        return replace(self, outcome=outcome, at=at, identity=identity, error=error)


Attempts = Mapping[CallTarget, Attempt]


def begun(attempts: Attempts, call: Call, at: float) -> Attempt:
    """The attempt that `call` begins."""
    last = attempts.get(call.target)
    if last is None or last.call != call:
        return Attempt(call=call, at=at)
    return Attempt(call=call, at=at, count=last.count + 1, error=last.error)


def delay_s(count: int) -> float:
    """Seconds between a call and the next one after `count` equal ones."""
    doubled: float = SETTLE_S * 2 ** min(max(count, 1) - 1, _MOST_DOUBLINGS)
    return min(doubled, LONGEST_DELAY_S)
