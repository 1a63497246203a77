"""`FleetControl`: what scalers and faults can observe and do in a fleet, and their interfaces."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pando_fleet.records.marks import MarkKind
from pando_fleet.records.queues import Queued
from pando_fleet.registry.replica import Heartbeat
from pando_fleet.registry.replica import Replica as Registered
from pando_sim.fleet.fleet import Fleet
from pando_sim.fleet.redis.client import LineRedis
from pando_sim.fleet.redis.line import BlockingLine
from pando_sim.fleet.routing.interfaces import POOL
from pando_sim.fleet.routing.router import Router
from pando_sim.fleet.routing.view import View
from pando_sim.records import Event, Run, ScalingStep, Served
from pando_sim.request import Request
from pando_sim.timeline import Timeline
from pando_sim.worker.replica import ReplicaState


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica's current state, without the delay of a heartbeat."""

    name: str
    state: ReplicaState
    started_s: float
    ready_s: float | None
    running: int
    waiting: int
    requests: int  # including those on their way to it, and those whose last token is leaving


class Cache(Protocol):
    """The cache of one replica; after its end, its last state."""

    def cached_tokens(self, tokens: NDArray[np.int32]) -> int:
        """How many of a prompt's tokens it holds."""
        ...


class FleetControl:
    """Replicas are identified by name, like pods."""

    def __init__(
        self,
        fleet: Fleet,
        routers: Sequence[Router],
        timeline: Timeline,
        view: View,
        line: BlockingLine,
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
        self.redis = LineRedis(line)  # of all routers, with everything that they have written
        self._run = run
        self._losses = 0  # current losses of Redis
        self.has_lost_redis = False  # at any time
        self.has_marks = False  # marks that routers must act on, as far as is known
        self.may_withhold = False  # marks may keep requests from a replica
        self.may_have_marks = False  # some were set since a read found none

    @property
    def now_s(self) -> float:
        return self._timeline.now_s

    def read(self, *reads: Awaitable[Any]) -> list[Any]:
        """The results of reads that wait for `redis` only; one round trip for all.

        Raises FleetError.
        """
        return self._line.together(*reads)

    @property
    def size(self) -> int:
        """How many replicas exist."""
        return len(self._fleet.replicas)

    @property
    def changes(self) -> int:
        """How often a replica has come, gone or changed its state."""
        return self._fleet.changes

    def redis_ms(self) -> int:
        return self._timeline.redis_ms()

    def replicas(self) -> Sequence[ReplicaView]:
        """The existing replicas, in the order in which they were started."""
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
        """The last heartbeat of each replica that is not silent, by name."""
        return self._view.last_beats()

    def registered(self) -> list[Registered] | None:
        """The registry's rows, which need no read while they are the heartbeats as sent; None if
        marks or a loss may have changed them."""
        if self.may_have_marks or self.has_lost_redis or self._view.has_silent:
            return None
        return self._view.registered(self.now_s)

    def cache(self, name: str) -> Cache:
        return self._fleet.replicas[name]

    def queues(self) -> Queued:
        """What waits in the routers, which report it without delay."""
        queues = [queue for router in self._routers for queue in (router.queue, router.crowd)]
        return Queued(
            requests=sum(len(queue) for queue in queues),
            waited_ms=int(1000 * max(queue.longest_wait_s for queue in queues)),
            tokens=round(sum(queue.tokens for queue in queues)),
        )

    def queued(self) -> int:
        """Requests that wait in the routers."""
        return self.queues().requests

    def in_flight(self) -> int:
        """Requests that have arrived and not ended."""
        return self.queued() + sum(router.in_flight for router in self._routers)

    def start(self, name: str, after_s: float | None = None) -> None:
        """Starts a replica; ready after the specification's start time, or `after_s`."""
        self._fleet.start(name, after_s)

    def drain(self, name: str) -> None:
        """Does what SIGTERM does: the replica's heartbeats say draining; it finishes its requests
        and refuses new ones. It exists until `stop`."""
        self._fleet.drain(name)

    def stop(self, name: str, *, leaves: bool = True) -> None:
        """Removes the replica at once, with its cache; its running requests are lost. One that
        `leaves` says goodbye to Redis, like a process that ends by itself."""
        self._fleet.stop(name, leaves=leaves)

    def slow_down(self, name: str, factor: float) -> None:
        """Makes its steps take `factor` times as long, from the next one on; 1.0 ends that."""
        self._fleet.replicas[name].slow_down(factor)

    def lose_redis(self) -> None:
        """Makes Redis answer nobody until `regain_redis` was called as often."""
        self._losses += 1
        self.has_lost_redis = True
        self._line.flush()
        self._line.is_away = self._view.is_redis_away = True

    async def regain_redis(self, *, empty: bool) -> None:
        """Brings Redis back, with or without its data."""
        self._losses -= 1
        if empty:
            self._line.is_away = False  # its server runs on, also while another loss lasts
            await self.redis.flushall()
        self._line.is_away = self._view.is_redis_away = self._losses > 0

    def shift_clock(self, router: int, by_s: float) -> None:
        """Moves a router's own clock ahead, or back."""
        self._routers[router].context.skew_s += by_s

    def marked(self) -> None:
        """A mark was set. Routers would find it themselves; this saves the looks that find
        nothing."""
        self.has_marks = self.may_withhold = self.may_have_marks = True

    def at(self, when_s: float, act: Callable[["FleetControl"], Awaitable[None]]) -> None:
        self._timeline.at(when_s, lambda: act(self))

    def record(self, what: Event | ScalingStep) -> None:
        """Adds to the run's records."""
        if isinstance(what, Event):
            self._run.events.append(what)
        else:
            self._run.steps.append(what)

    async def close(self) -> None:
        await self.redis.aclose()


class Scaler(Protocol):
    """Changes the pool's size: a controller together with its Kubernetes."""

    @property
    def every_s(self) -> float:
        """The interval of calls of `act`."""
        ...

    @property
    def sets_marks(self) -> bool:
        """Whether it sets marks in Redis by which routers warm replicas and hand off caches."""
        ...

    async def act(self, fleet: FleetControl) -> None: ...

    def ended(self, request: Request, served: Served) -> None:
        """Called for each request, so that it can compute the cost of its changes."""
        ...

    def prefilled(self, kind: MarkKind, tokens: int) -> None:
        """Called for each prefill that a mark caused."""
        ...

    def close(self, fleet: FleetControl) -> None:
        """Called when the trace is over, to report the rest."""
        ...
