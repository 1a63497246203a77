"""`Router`: the router's own deciding core (`pando_router.core`), driven by the virtual clock.

The core decides each request's next step. What asyncio does in production (`driver.py`,
`admission/`) is done here: asking the policy for a place, sending to a simulated replica, waiting
in the queue, all with the network's delay.
"""

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from math import nan

import numpy as np
from numpy.typing import NDArray

from pando_fleet.current import Current
from pando_fleet.redis.wire import Line as RedisLine
from pando_router.core.bounded_queue import (
    CROWD_PACE_S,
    PACE_S,
    BoundedQueue,
    QueueLimits,
    is_for_us,
    pause_s,
)
from pando_router.core.events import CacheReport, Head, Observer
from pando_router.core.fair_queue import Entry
from pando_router.core.flight import Flight
from pando_router.core.route import Shortage
from pando_router.core.tries import Action, Place, Refuse, Send, State, Tries, Wait
from pando_router.errors import ApiError
from pando_router.fleet_view.snapshot import LOOKS_READY_S
from pando_sim.adapters import of_adapter
from pando_sim.cost.model import CostModel
from pando_sim.fleet.routing.context import Context, PolicyFactory
from pando_sim.fleet.routing.interfaces import POOL, Held, Question
from pando_sim.fleet.routing.job import Job
from pando_sim.fleet.routing.view import View
from pando_sim.records import Outcome, Served
from pando_sim.request import Request
from pando_sim.spec import RouterSpec
from pando_sim.timeline import Act, Timeline
from pando_sim.worker.replica import Replica
from pando_sim.worker.stay import Stay

_NOBODY = Observer()

Seen = Callable[[bytes, NDArray[np.int32]], None]
"""Called with the keys of a prompt's chunks, and its tokens."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all routers share."""

    timeline: Timeline
    line: RedisLine
    view: View
    replicas: Mapping[str, Replica]
    cost: CostModel
    ended: Callable[["Router", Served], None]


class Router:
    """`arrive` takes a request; `Surroundings.ended` is called at its end."""

    def __init__(
        self,
        number: int,
        spec: RouterSpec,
        around: Surroundings,
        make_policy: PolicyFactory,
        rng: random.Random,
        queue_rng: random.Random,
    ) -> None:
        self.context = Context(
            number,
            around.timeline,
            around.line,
            around.view,
            around.replicas,
            rng,
            spec.retry_share,
        )
        self.name = f"router-{number}"
        self.policy = make_policy(self.context)
        self.queue: BoundedQueue[Job] = BoundedQueue(
            POOL,
            Current(QueueLimits(spec.queue_requests, body_bytes=2**63)),
            self.context.monotonic_s,
        )
        # Sessions that wait for room in the pool's memory; calls of running sessions pass them.
        self.crowd: BoundedQueue[Job] = BoundedQueue(
            POOL,
            Current(QueueLimits(spec.queue_requests, body_bytes=2**63)),
            self.context.monotonic_s,
        )
        self.reported_waiting = False  # in Redis; set by the reporter
        self.seen: Seen | None = None  # called with each prompt that a replica answers
        self._flights = self.context.flights
        self._random = queue_rng
        self._spec = spec
        self._around = around
        self._timeline = around.timeline
        self._will_pump = False
        self._will_look = False  # for room for the crowd
        # Requests that the policy keeps back, by number, with the incarnations that they avoid.
        self._held: dict[int, tuple[Job, Collection[str]]] = {}
        self.context.go_on = self._go_on

    async def arrive(self, request: Request) -> None:
        tries = Tries(
            self._flights, _NOBODY, max_tries=self._spec.max_tries, looks_ready_s=LOOKS_READY_S
        )
        job = Job(
            request,
            self._timeline.now_s if request.turn is None else request.at_s,
            of_adapter(request.prompt.keys(), request.adapter),
            request.prompt.num_tokens,
            tries,
        )
        await self._go(job, tries.arrived(overtakes=bool(self.queue)))

    @property
    def in_flight(self) -> int:
        """Requests that are at a replica."""
        return self._flights.in_flight.total()

    def given_back(self, elsewhere: int) -> None:
        """A request of this router has ended, and `elsewhere` requests wait at other routers."""
        if is_for_us(self._random, len(self.queue), elsewhere):
            self._look_after(0.0)
        else:
            self.look_later(elsewhere)

    def look_later(self, elsewhere: int) -> None:
        """A replica may have room again; routers look at different moments."""
        self._look_after(pause_s(self._random) if elsewhere else PACE_S)

    def _look_after(self, pause_s: float) -> None:
        if self.queue and not self._will_pump:
            self._will_pump = True
            self._timeline.after(pause_s, self._pump)

    # The core's actions

    async def _go(self, job: Job, action: Action) -> None:
        """Performs the core's actions, until one takes time."""
        while isinstance(action, Place):
            found = await self._place(job, action.barred)
            if isinstance(found, Held):
                self._held[job.request.number] = job, action.barred
                return
            action = job.tries.placed(found)
        match action:
            case Wait(shortage):
                self._wait(job, shortage)
            case Send(flight):
                self._send(job, flight)
            case Refuse(retry_after_s=retry_after_s):
                job.retry_after_s = max(1, retry_after_s)
                self._end(job, Outcome.FAILED if job.is_lost else Outcome.REFUSED)

    def _go_on(self, number: int) -> None:
        job, barred = self._held.pop(number)
        self._timeline.after(0.0, partial(self._go, job, Place(barred)))

    async def _place(self, job: Job, barred: Collection[str]) -> Flight | Shortage | Held:
        allowed = self._flights.usable(self._around.view.members, barred)
        if not allowed:  # a simulated pool always expects replicas
            return Shortage.NONE if barred else Shortage.ASLEEP
        prompt = job.request.prompt
        found = await self.policy.place(
            Question(
                request=job.request,
                prompt_tokens=job.prompt_tokens,
                prompt_bytes=prompt.num_bytes,
                keys=job.keys,
                output_tokens=self._output(job),
                may_wait=job.may_be_held_back,
                lease=f"{self.context.number}.{job.request.number}",
                allowed=allowed,
            )
        )
        if isinstance(found, (Shortage, Held)):
            return found
        return Flight(self._flights, found, prompt.num_bytes)

    def _output(self, job: Job) -> int:
        return min(job.request.output_tokens, self._spec.expected_output_tokens)

    # Waiting

    def _wait(self, job: Job, shortage: Shortage) -> None:
        until_s = job.tries.waits_until(self._spec.queue_deadline_s)
        queue = self.crowd if shortage.is_of_memory else self.queue
        job.may_be_held_back = shortage.is_of_memory
        entry = Entry(
            item=job,
            tenant="",
            is_back=shortage is Shortage.RETURNS,
            cost=job.prompt_tokens + self._output(job),
        )
        try:
            if until_s <= self._timeline.now_s:
                self._refuse(job, queue.retry_after_s())
                return
            queue.enter(entry, shortage)
        except ApiError:
            self._refuse(job, queue.retry_after_s())
            return
        self._timeline.at(until_s, partial(self._expire, queue, entry))
        if queue is self.crowd and not self._will_look:
            self._will_look = True
            self._timeline.after(CROWD_PACE_S, self._look_for_room)

    def _expire(self, queue: BoundedQueue[Job], entry: Entry[Job]) -> None:
        if entry in queue:
            retry_after_s = queue.retry_after_s()
            queue.leave(entry)
            self._refuse(entry.item, retry_after_s)

    async def _look_for_room(self) -> None:
        await self._serve(self.crowd)
        self._will_look = bool(self.crowd)
        if self._will_look:
            self._timeline.after(CROWD_PACE_S, self._look_for_room)

    async def _pump(self) -> None:
        self._will_pump = False
        await self._serve(self.queue)

    async def _serve(self, queue: BoundedQueue[Job]) -> None:
        while (head := queue.head()) is not None:
            job = head.item
            dead = job.tries.dead_now()
            found = await self._place(job, dead)
            if found is Shortage.NONE and dead:  # there is no other replica
                found = await self._place(job, ())
            if isinstance(found, Shortage):
                return
            queue.take(head)
            if isinstance(found, Held):
                self._held[job.request.number] = job, dead
            else:
                await self._go(job, job.tries.placed(found))

    def _refuse(self, job: Job, retry_after_s: float = nan) -> None:
        """A stream that has begun can only be broken off."""
        job.retry_after_s = retry_after_s
        job.tries.close()
        self._end(job, Outcome.FAILED if job.output else Outcome.REFUSED)

    # At a replica

    def _send(self, job: Job, flight: Flight) -> None:
        now_s, network_s = self._timeline.now_s, self._spec.network_s
        route = flight.route
        job.tries_made += 1
        job.route, job.placed_s = route, now_s
        replica = self._around.replicas.get(route.replica)
        if replica is None or replica.incarnation != route.incarnation:
            self._timeline.after(2 * network_s, partial(self.lost, job))
            return
        command = job.command()
        handling_s = self._around.cost.request_s(len(command.input_ids))
        arrives_s = now_s + network_s + handling_s
        job.stay = Stay(command, Try(self, job), arrives_s, job.request.prompt.num_bytes)
        replica.submit(job.stay)

    def answered(self, job: Job) -> None:
        """The first byte of a try has arrived."""
        assert job.stay is not None
        if job.first_s != job.first_s:
            job.first_s = self._timeline.now_s
        job.cached_tokens = job.stay.cached_tokens
        job.tries.answered(Head(200, CacheReport(job.cached_tokens, job.prompt_tokens)))
        if self.seen is not None and not job.request.adapter:
            self.seen(job.keys, job.stay.prompt_tokens)

    def finished(self, job: Job) -> None:
        assert job.stay is not None
        job.keep(job.stay)
        job.tries.close()
        self._end(job, Outcome.FINISHED)

    async def refused(self, job: Job, status: int) -> None:
        job.is_lost = False
        job.stay = None
        if status >= 500:
            await self._go(job, job.tries.failed(f"answered {status}", status))
            return
        action = job.tries.answered(Head(status))
        if isinstance(action, Place):
            await self._go(job, action)
        else:  # the client gets its answer
            self._refuse(job)

    async def lost(self, job: Job) -> None:
        """Its replica is gone."""
        job.is_lost = True
        if job.stay is not None:
            job.keep(job.stay)
            job.stay = None
        if job.tries.state is State.ANSWERED:
            job.tries.lost("gone")
            action: Action = job.tries.goes_on()
        else:
            action = job.tries.failed("gone")
        await self._go(job, action)

    def later(self, act: Act) -> None:
        """Schedules what a replica sends now for after the network's delay."""
        self._timeline.after(self._spec.network_s, act)

    def _end(self, job: Job, outcome: Outcome) -> None:
        served = job.served(self._timeline.now_s, outcome)
        job.stay = None  # it has the prompt and refers to the job; leave no cycle
        self._around.ended(self, served)


@dataclass(frozen=True, slots=True)
class Try:
    """Forwards a replica's events to the router, over the network."""

    router: Router
    job: Job

    def first_byte(self, stay: Stay) -> None:
        self.router.later(partial(self.router.answered, self.job))

    def finished(self, stay: Stay) -> None:
        self.router.later(partial(self.router.finished, self.job))

    def refused(self, stay: Stay, status: int) -> None:
        self.router.later(partial(self.router.refused, self.job, status))

    def lost(self, stay: Stay) -> None:
        self.router.later(partial(self.router.lost, self.job))
