"""What plugs into a simulated fleet: a placement rule, a scaler, faults.

Times are virtual seconds from the trace's start. Whatever is drawn at random is drawn from the
`random.Random` that comes with the context, and whatever is iterated has an order, so that the same
seed gives the same run bit for bit.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pando_fleet import Heartbeat, RedisClient
from pando_fleet.marks import MarkKind
from pando_fleet.wire import Line
from pando_router.core.route import Route, Shortage
from pando_sim.records import Event, ScalingStep, Served
from pando_sim.request import Request
from pando_sim.worker.replica import ReplicaState

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
    age_s: float

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


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica as it is at this moment, without the delay of a heartbeat."""

    name: str
    state: ReplicaState
    started_s: float
    ready_s: float | None
    running: int
    waiting: int
    requests: int  # these, and those that are on their way to it or whose last token leaves


class Cache(Protocol):
    """Of one replica; after its end as it was then."""

    def cached_tokens(self, tokens: NDArray[np.int32]) -> int:
        """Of a prompt."""
        ...


class FleetControl(Protocol):
    """What scalers and faults do to a fleet. A replica is known by its name, as a pod is."""

    @property
    def now_s(self) -> float: ...

    @property
    def pool(self) -> str: ...

    @property
    def redis(self) -> RedisClient:
        """The one of all routers; what they wrote until now is in it."""
        ...

    @property
    def random(self) -> random.Random: ...

    def redis_ms(self) -> int: ...

    def replicas(self) -> Sequence[ReplicaView]:
        """That exist, in the order in which they were started."""
        ...

    def heard(self) -> Sequence[Heartbeat]:
        """The last of each replica that is not silent, by name."""
        ...

    def cache(self, name: str) -> Cache: ...

    def queued(self) -> int:
        """Requests that wait in the routers."""
        ...

    def in_flight(self) -> int:
        """Requests that came and have not ended."""
        ...

    def start(self, name: str, after_s: float | None = None) -> None:
        """A new replica; ready after the specification's start time, or `after_s`."""
        ...

    def drain(self, name: str) -> None:
        """What SIGTERM does: its heartbeats say draining, it finishes what it has, and refuses what
        comes. It exists until `stop`."""
        ...

    def stop(self, name: str, *, leaves: bool = True) -> None:
        """The replica is gone at this moment, with its cache; what runs there is lost. One that
        `leaves` says so to Redis, as a process does that ends by itself."""
        ...

    def slow_down(self, name: str, factor: float) -> None:
        """Its steps take `factor` times as long from the next one on; 1.0 ends it."""
        ...

    def lose_redis(self) -> None:
        """Redis answers nobody until `regain_redis` was called as often as this."""
        ...

    async def regain_redis(self, *, empty: bool) -> None:
        """It is back, with what it had or without."""
        ...

    def shift_clock(self, router: int, by_s: float) -> None:
        """A router's own clock goes ahead, or back, by so much."""
        ...

    def marked(self) -> None:
        """A mark in Redis asks routers for something. They would find it by themselves: this
        spares all the looks that find nothing."""
        ...

    def at(self, when_s: float, act: Callable[["FleetControl"], Awaitable[None]]) -> None: ...

    def tell(self, what: Event | ScalingStep) -> None:
        """Into the run's records."""
        ...


class Scaler(Protocol):
    """Changes the pool's size: a controller together with the Kubernetes that it runs in."""

    @property
    def every_s(self) -> float:
        """Between two calls of `act`."""
        ...

    @property
    def sets_marks(self) -> bool:
        """Whether it asks routers, by marks in Redis, to warm replicas and to hand caches off."""
        ...

    async def act(self, fleet: FleetControl) -> None: ...

    def ended(self, request: Request, served: Served) -> None:
        """Told of each request, so that it knows what its changes cost."""
        ...

    def prefilled(self, kind: MarkKind, tokens: int) -> None:
        """Told of each prefill that a mark asked for."""
        ...

    def close(self, fleet: FleetControl) -> None:
        """The trace is over; what it has not told yet is to be told now."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    what: str  # for the plots
    act: Callable[[FleetControl], Awaitable[str]]
    """Returns why it could not happen; nothing where it did."""
