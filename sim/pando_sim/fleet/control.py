"""`FleetControl`: what scalers and faults see of a fleet and do to it, and what they are."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from pando_fleet.records.marks import MarkKind
from pando_fleet.redis.client import RedisClient
from pando_fleet.registry.replica import Heartbeat
from pando_sim.fleet.fleet import Fleet
from pando_sim.fleet.redis.line import BlockingLine
from pando_sim.fleet.redis.server import client_of
from pando_sim.fleet.routing.interfaces import POOL
from pando_sim.fleet.routing.router import Router
from pando_sim.fleet.routing.view import View
from pando_sim.records import Event, Run, ScalingStep, Served
from pando_sim.request import Request
from pando_sim.timeline import Timeline
from pando_sim.worker.replica import ReplicaState

NOBODY = "/nonexistent/pando-sim/redis.sock"


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


class FleetControl:
    """A replica is known by its name, as a pod is."""

    def __init__(
        self,
        fleet: Fleet,
        routers: Sequence[Router],
        timeline: Timeline,
        view: View,
        line: BlockingLine,
        socket: str,
        run: Run,
        rng: random.Random,
    ) -> None:
        self.pool = POOL
        self.random = rng
        self._fleet = fleet
        self._routers = routers
        self._timeline = timeline
        self._view = view
        self._line = line
        self._there = client_of(socket)
        self._away = Redis(unix_socket_path=NOBODY, retry=Retry(NoBackoff(), 0))
        self._run = run
        self._losses = 0  # of Redis, that are not over yet
        self.has_lost_redis = False  # ever
        self.has_marks = False  # that ask routers for something, as far as is known

    @property
    def now_s(self) -> float:
        return self._timeline.now_s

    @property
    def redis(self) -> RedisClient:
        """The one of all routers; what they wrote until now is in it."""
        if self._line.is_away:
            return self._away
        self._line.flush()
        return self._there

    def redis_ms(self) -> int:
        return self._timeline.redis_ms()

    def replicas(self) -> Sequence[ReplicaView]:
        """That exist, in the order in which they were started."""
        return [
            ReplicaView(
                each.name,
                each.state,
                each.started_s,
                each.ready_s,
                len(each.scheduler.planner.running) + len(each.scheduler.planner.prefilling),
                len(each.scheduler.planner.waiting),
                len(each.stays),
            )
            for each in self._fleet.replicas.values()
        ]

    def heard(self) -> Sequence[Heartbeat]:
        """The last of each replica that is not silent, by name."""
        return self._view.last_beats()

    def cache(self, name: str) -> Cache:
        return self._fleet.replicas[name]

    def queued(self) -> int:
        """Requests that wait in the routers."""
        return sum(len(router.queue) for router in self._routers)

    def in_flight(self) -> int:
        """Requests that came and have not ended."""
        return self.queued() + sum(router.in_flight for router in self._routers)

    def start(self, name: str, after_s: float | None = None) -> None:
        """A new replica; ready after the specification's start time, or `after_s`."""
        self._fleet.start(name, after_s)

    def drain(self, name: str) -> None:
        """What SIGTERM does: its heartbeats say draining, it finishes what it has, and refuses what
        comes. It exists until `stop`."""
        replica = self._fleet.replicas[name]
        replica.become(ReplicaState.DRAINING)
        self._fleet.tell([replica])

    def stop(self, name: str, *, leaves: bool = True) -> None:
        """The replica is gone at this moment, with its cache; what runs there is lost. One that
        `leaves` says so to Redis, as a process does that ends by itself."""
        self._fleet.stop(name, leaves=leaves)

    def slow_down(self, name: str, factor: float) -> None:
        """Its steps take `factor` times as long from the next one on; 1.0 ends it."""
        self._fleet.replicas[name].slow_down(factor)

    def lose_redis(self) -> None:
        """Redis answers nobody until `regain_redis` was called as often as this."""
        self._losses += 1
        self.has_lost_redis = True
        self._line.flush()
        self._line.is_away = self._view.is_redis_away = True

    async def regain_redis(self, *, empty: bool) -> None:
        """It is back, with what it had or without."""
        self._losses -= 1
        self._line.is_away = self._view.is_redis_away = self._losses > 0
        if empty:
            await self._there.flushall()

    def shift_clock(self, router: int, by_s: float) -> None:
        """A router's own clock goes ahead, or back, by so much."""
        self._routers[router].context.skew_s += by_s

    def marked(self) -> None:
        """A mark in Redis asks routers for something. They would find it by themselves: this
        spares all the looks that find nothing."""
        self.has_marks = True

    def at(self, when_s: float, act: Callable[["FleetControl"], Awaitable[None]]) -> None:
        self._timeline.at(when_s, lambda: act(self))

    def tell(self, what: Event | ScalingStep) -> None:
        """Into the run's records."""
        if isinstance(what, Event):
            self._run.events.append(what)
        else:
            self._run.steps.append(what)

    async def close(self) -> None:
        await self._there.aclose()
        await self._away.aclose()


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
        """The trace is over: reports what it has not reported yet."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    what: str  # for the plots
    act: Callable[[FleetControl], Awaitable[str]]
    """Returns why it could not happen; nothing where it did."""
