"""`Router`: placement, tries and the queue of one router, as `pando_router` has them.

A request that a replica refuses, or loses before its first token, is tried elsewhere, within the
router's own budget of retries; one that is lost later goes on elsewhere behind what it has.
Replicas that fail are left alone by its own breaker. Who finds no place waits, first come first
served.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pando_fleet import Heartbeat
from pando_fleet.wire import Line
from pando_router.admission.pool_queue import JITTER, PACE_S
from pando_router.core.breaker import Breaker, BreakerState
from pando_router.core.retry_budget import RetryBudget
from pando_sim.fleet.interfaces import End, Member, Place, Question, RuleFactory, Shortage
from pando_sim.fleet.job import Job
from pando_sim.fleet.view import View
from pando_sim.records import Outcome, Served
from pando_sim.request import Prompt, Request
from pando_sim.spec import RouterSpec
from pando_sim.timeline import Act, Timeline
from pando_sim.worker.model import CostModel
from pando_sim.worker.replica import Replica
from pando_sim.worker.stay import Stay

POOL = "simulated"
RETRY_SHARE = 0.2  # of the requests, as in the router's settings


Seen = Callable[[bytes, Prompt], None]
"""Takes the keys of a prompt's chunks, and the prompt."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all routers share."""

    timeline: Timeline
    line: Line
    view: View
    replicas: Mapping[str, Replica]
    cost: CostModel
    ended: Callable[["Router", Served], None]


class Context:
    """What a router's rule may know: see `interfaces.RouterContext`."""

    def __init__(self, number: int, around: Surroundings, rng: random.Random) -> None:
        self.number = number
        self.random = rng
        self.pool = POOL
        self.line = around.line
        self.skew_s = 0.0
        self.at_replica: Counter[str] = Counter()
        self._around = around

    def redis_ms(self) -> int:
        return self._around.timeline.redis_ms()

    def now_s(self) -> float:
        return self._around.timeline.now_s + self.skew_s

    def monotonic_s(self) -> float:
        return self._around.timeline.now_s

    def members(self) -> Sequence[Member]:
        return self._around.view.members

    def in_flight(self, replica: str) -> int:
        return self.at_replica[replica]

    def look(self, replica: str) -> Heartbeat | None:
        self._around.timeline.looks_any_time = True
        there = self._around.replicas.get(replica)
        return there.heartbeat() if there else None

    def cached_tokens(self, replica: str, tokens: NDArray[np.int32]) -> int:
        there = self._around.replicas.get(replica)
        return there.cached_tokens(tokens) if there else 0

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        self._around.timeline.after(delay_s, act)


class Router:
    """`arrive` takes a request, `Surroundings.ended` is told its end."""

    def __init__(
        self,
        number: int,
        spec: RouterSpec,
        around: Surroundings,
        make_rule: RuleFactory,
        rng: random.Random,
        queue_rng: random.Random,
    ) -> None:
        self.context = Context(number, around, rng)
        self._random = queue_rng
        self.queue: deque[Job] = deque()
        self.name = f"router-{number}"
        self.rule = make_rule(self.context)
        self.leased: dict[int, Job] = {}  # at a replica, by number
        self._spec = spec
        self._around = around
        self._timeline = around.timeline
        self._breaker = Breaker(self.context.monotonic_s)
        self._budget = RetryBudget(lambda: RETRY_SHARE, self.context.monotonic_s)
        self._will_pump = False
        self.told_waiting = False  # to Redis, by who tells it
        self.seen: Seen | None = None  # told of each prompt that a replica answers

    async def arrive(self, request: Request) -> None:
        now_s = self._timeline.now_s
        job = Job(
            request,
            now_s,
            request.prompt.keys(),
            request.prompt.num_tokens,
            deadline_s=now_s + self._spec.queue_deadline_s,
            allowed=self._spec.max_tries,
        )
        self._budget.request()
        await self._go(job)

    def given_back(self, elsewhere: int) -> None:
        """A request that was sent from here has ended, and `elsewhere` wait at other routers. Its
        place is for the next one here with the chance that the next one of all who wait is here, as
        `pando_router.admission.Admission.released` has it; else for whoever looks first."""
        here = len(self.queue)
        if elsewhere and self._random.random() * (here + elsewhere) >= here:
            self.look_later(elsewhere)
        else:
            self._look_after(0.0)

    def look_later(self, elsewhere: int) -> None:
        """A replica may have room again; routers do not look all at once."""
        spread = self._random.uniform(1 - JITTER, 1 + JITTER) if elsewhere else 1.0
        self._look_after(PACE_S * spread)

    def _look_after(self, pause_s: float) -> None:
        if self.queue and not self._will_pump:
            self._will_pump = True
            self._timeline.after(pause_s, self._pump)

    def renew(self) -> None:
        for job in self.leased.values():
            assert job.question is not None
            assert job.place is not None
            self.rule.renew(job.question, job.place)

    @property
    def waiting_tokens(self) -> int:
        """Of the prompts and the expected outputs of those that wait."""
        return sum(job.prompt_tokens + self._output(job) for job in self.queue)

    # Placing

    async def _go(self, job: Job) -> None:
        if self.queue and not job.tried:
            self._wait(job)
            return
        found = await self._place(job)
        if isinstance(found, Place):
            self._send(job, found)
        elif found is Shortage.NONE and job.tried:
            self._end(job, self._failed(job))
        else:
            self._wait(job)

    async def _place(self, job: Job) -> Place | Shortage:
        allowed = self._around.view.members
        if job.tried:
            allowed = tuple(m for m in allowed if m.name not in job.tried)
        if self._breaker:
            allowed = tuple(m for m in allowed if not self._is_out(m)) or allowed
        if not allowed:
            return Shortage.NONE
        job.question = Question(
            request=job.request,
            prompt_tokens=job.prompt_tokens,
            prompt_bytes=job.request.prompt.num_bytes,
            keys=job.keys,
            output_tokens=self._output(job),
            lease=f"{self.context.number}.{job.request.number}",
            tried=tuple(job.tried),
            allowed=allowed,
        )
        return await self.rule.place(job.question)

    def _is_out(self, member: Member) -> bool:
        return self._breaker.state(member.beat.incarnation) is BreakerState.OPEN

    def _output(self, job: Job) -> int:
        return min(job.request.output_tokens, self._spec.expected_output_tokens)

    # Waiting

    def _wait(self, job: Job) -> None:
        if len(self.queue) >= self._spec.queue_requests or job.deadline_s <= self._timeline.now_s:
            self._end(job, self._not_placed(job))
            return
        self.queue.append(job)
        self._timeline.at(job.deadline_s, partial(self._expire, job))

    def _expire(self, job: Job) -> None:
        if job in self.queue and job.deadline_s <= self._timeline.now_s:
            self.queue.remove(job)
            self._end(job, self._not_placed(job))

    async def _pump(self) -> None:
        self._will_pump = False
        while self.queue:
            job = self.queue[0]
            found = await self._place(job)
            if found is Shortage.NONE and job.tried:
                job.tried.clear()  # there is nobody else
                found = await self._place(job)
            if not isinstance(found, Place):
                return
            self.queue.popleft()
            self._send(job, found)

    # At a replica

    def _send(self, job: Job, place: Place) -> None:
        now_s, network_s = self._timeline.now_s, self._spec.network_s
        job.tries += 1
        job.place, job.placed_s = place, now_s
        self.leased[job.request.number] = job
        self.context.at_replica[place.replica] += 1
        self._breaker.trying(place.incarnation)
        replica = self._around.replicas.get(place.replica)
        if replica is None or replica.incarnation != place.incarnation:
            job.is_lost = True
            self._timeline.after(2 * network_s, partial(self._retry, job))
            return
        command = job.command()
        handling_s = self._around.cost.request_s(len(command.input_ids))
        arrives_s = now_s + network_s + handling_s
        job.stay = Stay(command, Try(self, job), arrives_s, job.request.prompt.num_bytes)
        replica.submit(job.stay)

    def answered(self, job: Job) -> None:
        """The first byte of a try."""
        assert job.question is not None
        assert job.place is not None
        assert job.stay is not None
        if job.first_s != job.first_s:
            job.first_s = self._timeline.now_s
        job.cached_tokens = job.stay.cached_tokens
        self._breaker.succeeded(job.place.incarnation)
        self.rule.first_byte(job.question, job.place, job.stay.cached_tokens)
        if self.seen is not None:
            self.seen(job.keys, job.request.prompt)

    def finished(self, job: Job) -> None:
        assert job.stay is not None
        job.keep(job.stay)
        self._leave(job, End.FINISHED)
        self._end(job, Outcome.FINISHED)

    async def refused(self, job: Job, status: int) -> None:
        if status >= 500:
            job.is_lost = False
            await self._retry(job)
        else:
            self._leave(job, End.UNANSWERED)
            self._end(job, Outcome.REFUSED)

    async def lost(self, job: Job) -> None:
        """Its replica is gone."""
        assert job.stay is not None
        job.keep(job.stay)
        job.is_lost = True
        await self._retry(job)

    async def _retry(self, job: Job) -> None:
        """The try has failed: another one, if there may be one."""
        assert job.place is not None
        streamed = job.is_lost and job.stay is not None and job.stay.tokens > 0
        self._breaker.failed(job.place.incarnation)
        self._leave(job, End.LOST if streamed else End.UNANSWERED)
        job.tried.append(job.place.replica)
        job.failures += 1
        job.stay = None
        if streamed:
            job.allowed = job.failures + self._spec.max_tries
            job.deadline_s = self._timeline.now_s + self._spec.queue_deadline_s  # of another wait
        elif job.failures >= job.allowed or not self._budget.allows():
            self._end(job, self._failed(job))
            return
        self._budget.retry()
        await self._go(job)

    def _not_placed(self, job: Job) -> Outcome:
        """A stream that has begun can only break off."""
        return Outcome.FAILED if job.output else Outcome.REFUSED

    def _failed(self, job: Job) -> Outcome:
        return Outcome.FAILED if job.is_lost else Outcome.REFUSED

    def later(self, act: Act) -> None:
        """What a replica says now is heard here after the network's delay."""
        self._timeline.after(self._spec.network_s, act)

    def _leave(self, job: Job, end: End) -> None:
        assert job.question is not None
        assert job.place is not None
        del self.leased[job.request.number]
        self.context.at_replica[job.place.replica] -= 1
        self.rule.ended(job.question, job.place, end)

    def _end(self, job: Job, outcome: Outcome) -> None:
        served = job.served(self._timeline.now_s, outcome)
        job.stay = None  # which holds the prompt, and refers to the job: no cycle is left behind
        self._around.ended(self, served)


@dataclass(frozen=True, slots=True)
class Try:
    """Brings a replica's word to the router, over the network."""

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
