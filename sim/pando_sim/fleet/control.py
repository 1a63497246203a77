"""`Control`: the fleet as scalers and faults see it; `interfaces.FleetControl`."""

import random
from collections.abc import Awaitable, Callable, Sequence

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from pando_fleet import Heartbeat, RedisClient
from pando_sim.fleet.fleet import Fleet
from pando_sim.fleet.interfaces import POOL, Cache, FleetControl, ReplicaView
from pando_sim.fleet.line import BlockingLine
from pando_sim.fleet.router import Router
from pando_sim.fleet.server import client_of
from pando_sim.fleet.view import View
from pando_sim.records import Event, Run, ScalingStep
from pando_sim.timeline import Timeline
from pando_sim.worker.replica import ReplicaState

NOBODY = "/nonexistent/pando-sim/redis.sock"


class Control:
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
        if self._line.is_away:
            return self._away
        self._line.flush()
        return self._there

    def redis_ms(self) -> int:
        return self._timeline.redis_ms()

    def replicas(self) -> Sequence[ReplicaView]:
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
        return self._view.last_beats()

    def cache(self, name: str) -> Cache:
        return self._fleet.replicas[name]

    def queued(self) -> int:
        return sum(len(router.line) for router in self._routers)

    def in_flight(self) -> int:
        return self.queued() + sum(router.in_flight for router in self._routers)

    def start(self, name: str, after_s: float | None = None) -> None:
        self._fleet.start(name, after_s)

    def drain(self, name: str) -> None:
        replica = self._fleet.replicas[name]
        replica.become(ReplicaState.DRAINING)
        self._fleet.tell([replica])

    def stop(self, name: str, *, leaves: bool = True) -> None:
        self._fleet.stop(name, leaves=leaves)

    def slow_down(self, name: str, factor: float) -> None:
        self._fleet.replicas[name].slow_down(factor)

    def lose_redis(self) -> None:
        self._losses += 1
        self.has_lost_redis = True
        self._line.flush()
        self._line.is_away = self._view.is_redis_away = True

    async def regain_redis(self, *, empty: bool) -> None:
        self._losses -= 1
        self._line.is_away = self._view.is_redis_away = self._losses > 0
        if empty:
            await self._there.flushall()

    def shift_clock(self, router: int, by_s: float) -> None:
        self._routers[router].context.skew_s += by_s

    def marked(self) -> None:
        self.has_marks = True

    def at(self, when_s: float, act: Callable[[FleetControl], Awaitable[None]]) -> None:
        self._timeline.at(when_s, lambda: act(self))

    def tell(self, what: Event | ScalingStep) -> None:
        if isinstance(what, Event):
            self._run.events.append(what)
        else:
            self._run.steps.append(what)

    async def close(self) -> None:
        await self._there.aclose()
        await self._away.aclose()
