"""What plugs into a simulated router: a placement rule.

Times are virtual seconds from the trace's start. Whatever is drawn at random is drawn from the
`random.Random` that comes with the context, and whatever is iterated has an order, so that the same
seed gives the same run bit for bit.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pando_fleet.replica import Heartbeat
from pando_fleet.wire import Line
from pando_router.core.route import Route, Shortage
from pando_sim.request import Request

POOL = "simulated"


@dataclass(frozen=True, slots=True)
class Question:
    """A request that a router wants placed."""

    request: Request
    prompt_tokens: int
    prompt_bytes: int
    keys: bytes  # of its prompt's chunks, packed, root first
    output_tokens: int  # expected
    lease: str  # an id of this request at this router
    allowed: tuple["Member", ...]  # those that may be chosen, by name; at least one


class Rule(Protocol):
    """The placement of one router. It may keep state of its own, and learns what a router learns:
    the lease of a route hears of the first byte, of the request going on, and of its end.

    The calls come in the order of virtual time. None but `place` waits for anything.
    """

    async def place(self, question: Question) -> Route | Shortage: ...

    def close(self) -> None:
        """The trace is over; what has not been written is to be written now."""
        ...


@dataclass(frozen=True, slots=True)
class Member:
    """A replica as a router knows it by its last heartbeat: fresh, ready, and with no mark that
    withholds it."""

    beat: Heartbeat

    @property
    def name(self) -> str:
        return self.beat.replica


class RouterContext(Protocol):
    """What a rule may know and use; one a router."""

    @property
    def number(self) -> int:
        """Which of the routers, from 0."""
        ...

    @property
    def random(self) -> random.Random: ...

    @property
    def pool(self) -> str: ...

    @property
    def line(self) -> Line:
        """To the one Redis of all routers; what is sent first arrives first."""
        ...

    def redis_ms(self) -> int:
        """Redis's clock, which is the one of all scripts."""
        ...

    def now_s(self) -> float:
        """This router's own clock, which may be off."""
        ...

    def monotonic_s(self) -> float:
        """For waiting: a clock that nobody sets."""
        ...

    def members(self) -> Sequence[Member]:
        """By name."""
        ...

    def in_flight(self, member: Member) -> int:
        """Requests that this router has there."""
        ...

    def look(self, replica: str) -> Heartbeat | None:
        """What the replica says of itself at this moment; None where it is gone. For rules of
        routers that ask their engines more often than heartbeats come."""
        ...

    def cached_tokens(self, replica: str, tokens: NDArray[np.int32]) -> int:
        """Of a prompt, what the replica holds at this moment: for rules of fleets whose engines
        tell each change of their caches."""
        ...

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Calls back, `delay_s` of virtual time later."""
        ...


RuleFactory = Callable[[RouterContext], Rule]
"""Makes the rule of one router."""
