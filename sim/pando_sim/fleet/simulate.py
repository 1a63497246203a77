"""`simulate`: runs one policy on one trace."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial

from pando_fleet.records.loads import Loads
from pando_fleet.records.marks import MarkKind, Marks
from pando_fleet.records.queues import REPORT_MS
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import ReportQueue
from pando_fleet.redis.wire import WireScript
from pando_fleet.registry.registry import Registry
from pando_router.warming.warming import POLL_S
from pando_sim.cost.model import CostModel
from pando_sim.fleet.arrivals import Arrivals
from pando_sim.fleet.checks import Checks
from pando_sim.fleet.control import FleetControl, Scaler
from pando_sim.fleet.fault import Fault
from pando_sim.fleet.fleet import Fleet
from pando_sim.fleet.redis.line import BlockingLine
from pando_sim.fleet.redis.server import valkey
from pando_sim.fleet.routing.context import PolicyFactory
from pando_sim.fleet.routing.interfaces import POOL
from pando_sim.fleet.routing.router import Router, Surroundings
from pando_sim.fleet.routing.view import View
from pando_sim.fleet.sampling import sample
from pando_sim.fleet.session_arrivals import SessionArrivals
from pando_sim.fleet.warming import Warming
from pando_sim.records import Event, Outcome, Run, Served
from pando_sim.request import Request
from pando_sim.session import Crowd
from pando_sim.spec import FleetSpec
from pando_sim.timeline import Act, Timeline

Progress = Callable[[int, float], None]
"""Called at each sample with the number of ended requests, and the virtual time."""


async def simulate(
    spec: FleetSpec,
    requests: Iterator[Request] | Crowd,
    *,
    cost: CostModel,
    policy: PolicyFactory,
    scaler: Scaler | None = None,
    faults: Sequence[Fault] = (),
    progress: Progress | None = None,
    strides: bool = True,
) -> Run:
    """Runs until all requests have ended and all replicas are idle.

    Args:
        requests: of a trace, or the sessions that are kept running.
        policy: makes the policy of each router.
        scaler: None keeps the size.
        strides: False simulates each step separately, with the same results but slower.

    Raises Violation if an invariant fails, ValueError if the trace is not in order, RuntimeError if
    no Valkey starts.
    """
    started = time.perf_counter()
    with valkey() as socket:
        simulation = Simulation(spec, requests, cost, policy, scaler, socket, strides=strides)
        try:
            await simulation.run(faults, progress)
        finally:
            await simulation.close()
    simulation.record.wall_s = time.perf_counter() - started
    return simulation.record


class Simulation:
    """All parts of a run, and its periodic work."""

    def __init__(
        self,
        spec: FleetSpec,
        requests: Iterator[Request] | Crowd,
        cost: CostModel,
        policy: PolicyFactory,
        scaler: Scaler | None,
        socket: str,
        *,
        strides: bool,
    ) -> None:
        self.record = Run(
            policy=spec.policy,
            scaling=spec.scaling,
            session_rule=spec.session_rule,
            seed=spec.seed,
            cost_model=f"{cost.name}: {cost.source}",
            settings=asdict(spec),
        )
        self._spec = spec
        self._scaler = scaler
        self._checks = Checks()
        self._timeline = Timeline()
        self._line = BlockingLine(socket)
        self._view = View(has_marks=scaler is not None and scaler.sets_marks)
        self._fleet = Fleet(
            spec.worker,
            POOL,
            cost,
            self._timeline,
            self._line,
            self._view,
            self._rng("replicas"),
            strides=strides,
        )
        around = Surroundings(
            self._timeline, self._line, self._view, self._fleet.replicas, cost, self._ended
        )
        self._routers = [
            Router(
                number,
                spec.router,
                around,
                policy,
                self._rng(f"router {number}"),
                self._rng(f"queue {number}"),
            )
            for number in range(spec.router.routers)
        ]
        self._control = FleetControl(
            self._fleet,
            self._routers,
            self._timeline,
            self._view,
            self._line,
            self.record,
            self._rng("control"),
        )
        self._warming = self._warmings(around)
        self._registry = Registry(self._control.redis, self._timeline.redis_ms)
        self._marks = Marks(self._control.redis, POOL, self._timeline.redis_ms)
        self._arrivals: Arrivals | SessionArrivals
        if isinstance(requests, Crowd):
            self._arrivals = SessionArrivals(
                requests, self._timeline, self._arrive, self._session_ended
            )
        else:
            self._arrivals = Arrivals(requests, self._timeline, self._arrive)
        self._report_queue = WireScript(self._line, ReportQueue)
        self._came = 0
        self._ends = 0
        self._finished = 0

    def _warmings(self, around: Surroundings) -> list[Warming]:
        """One per router, if warming is used."""
        scaler, found = self._scaler, []
        if scaler is not None and scaler.sets_marks:
            for router in self._routers:
                way_s = self._spec.router.network_s
                warming = Warming(router.name, way_s, around, self._control, scaler.prefilled)
                router.seen = warming.seen
                found.append(warming)
        return found

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self._spec.seed} {what}")  # a text seeds alike everywhere

    async def run(self, faults: Sequence[Fault], progress: Progress | None) -> None:
        spec, timeline = self._spec, self._timeline
        skews = self._rng("clocks")
        for router in self._routers:
            router.context.skew_s = spec.router.clock_skew_s * skews.uniform(-1, 1)
        for number in range(spec.replicas):
            self._fleet.start(f"replica-{number}", 0.0)
        self._every(spec.worker.beat_s, self._beat, first_s=0.0, looks=True)
        self._every(spec.sample_s, partial(self._sample, progress), first_s=0.0, looks=True)
        self._every(REPORT_MS / 1000, self._report_queues)
        if self._scaler is not None:
            self._every(self._scaler.every_s, self._scale)
        if self._warming:
            self._every(POLL_S, self._look_at_marks)
        for fault in faults:
            timeline.at(fault.at_s, partial(self._fault, fault))
        self._arrivals.begin()
        while not self._arrivals.over:
            await timeline.step()
        for warming in self._warming:
            warming.stop()
        while any(warming.is_at_work for warming in self._warming):
            await timeline.step()
        await self._end()

    async def close(self) -> None:
        for warming in self._warming:
            await warming.close()
        await self._control.close()
        self._line.close()

    def _every(
        self, period_s: float, act: Act, *, first_s: float | None = None, looks: bool = False
    ) -> None:
        """Calls `act` periodically; `looks`: it looks into replicas."""

        async def again() -> None:
            self._timeline.at(self._timeline.now_s + period_s, again, looks=looks)
            if (waits := act()) is not None:
                await waits

        self._timeline.at(period_s if first_s is None else first_s, again, looks=looks)

    # Requests

    async def _arrive(self, request: Request) -> None:
        self._came += 1
        self._checks.came(request)
        await self._routers[request.number % len(self._routers)].arrive(request)

    def _session_ended(self, name: str) -> None:
        for router in self._routers:
            router.context.session_ended(name)

    def _ended(self, router: Router, served: Served) -> None:
        request = self._checks.ended(served)
        self.record.served.append(served)
        self._ends += 1
        self._finished += served.outcome is Outcome.FINISHED
        self._arrivals.ended(served)
        if self._scaler is not None:
            self._scaler.ended(request, served)
        for each, elsewhere in self._queues():
            if each is router:
                each.given_back(elsewhere)
            else:
                each.look_later(elsewhere)

    def _queues(self) -> list[tuple[Router, int]]:
        """The routers with waiting requests, and how many wait at the others."""
        waiting = sum(len(router.queue) for router in self._routers)
        return [(one, waiting - len(one.queue)) for one in self._routers if one.queue]

    # Periodic work

    async def _beat(self) -> None:
        self._fleet.beat(list(self._fleet.replicas.values()))
        if self._scaler is not None and not self._line.is_away:
            self._look_at_replicas()
        for router, elsewhere in self._queues():
            router.look_later(elsewhere)

    def _look_at_replicas(self) -> None:
        """Routers read the registry. While no mark withholds a replica, that says what was just
        sent to it, unless a part of that was lost."""
        if not (self._control.may_withhold or self._control.has_lost_redis):
            self._view.read_as_sent()
            return
        marks, replicas = self._control.read(self._marks.all(), self._registry.replicas(POOL))
        self._control.may_withhold = not all(mark.is_over for mark in marks)
        self._view.read(replicas)

    def _sample(self, progress: Progress | None) -> None:
        now_s = self._timeline.now_s
        self.record.samples.append(
            sample(now_s, self._fleet, self._routers, arrived=self._came, finished=self._finished)
        )
        for replica in self._fleet.replicas.values():
            self._checks.pool(replica)
        if progress is not None:
            progress(self._ends, now_s)

    def _report_queues(self) -> None:
        """Reports the queues like routers, so that the operator sees them."""
        for router in self._routers:
            waiting = len(router.queue)
            if waiting or router.reported_waiting:
                report = ReportQueue(
                    queues=PoolKeys(POOL).queues,
                    now=self._timeline.redis_ms(),
                    router=router.name,
                    requests=waiting,
                    waited_ms=int(1000 * router.queue.longest_wait_s),
                    tokens=round(router.queue.tokens),
                )
                self._report_queue.send(report, (), _unheard)
            router.reported_waiting = waiting > 0

    async def _scale(self) -> None:
        assert self._scaler is not None
        await self._scaler.act(self._control)

    async def _look_at_marks(self) -> None:
        if not self._control.has_marks or self._line.is_away:
            return
        every = await self._marks.all()
        marks = [mark for mark in every if mark.kind is not MarkKind.DRAIN and not mark.is_over]
        self._control.has_marks = bool(marks)
        for warming in self._warming:
            await warming.look(self._control.redis, marks)

    async def _fault(self, fault: Fault) -> None:
        why_not = await fault.act(self._control)
        what = f"{fault.what}: no, {why_not}" if why_not else fault.what
        self.record.events.append(Event(at_s=self._timeline.now_s, what=what))

    # The end

    async def _end(self) -> None:
        self._checks.all_ended()
        self._sample(None)
        if self._scaler is not None:
            self._scaler.close(self._control)
        for router in self._routers:
            router.policy.close()
        for replica in self._fleet.replicas.values():
            self._checks.idle(replica)
        self._checks.tokens(self._fleet, sum(warming.computed for warming in self._warming))
        if not self._line.is_away:
            await self._check_leases()
        self.record.sessions = self._arrivals.counts
        self.record.checks = dict(self._checks.counts)

    async def _check_leases(self) -> None:
        redis, ends_ms = self._control.redis, int(1000 * self._spec.router.lease_s) + 1
        if self._control.has_lost_redis:  # and with it releases; those leases expire
            loads = Loads(redis, POOL, lambda: self._timeline.redis_ms() + ends_ms)
            while await loads.read():
                pass
        await self._checks.leases(redis, POOL)


def _unheard(reply: object) -> None:
    """Ignores the answer; while Redis is away it is lost."""
