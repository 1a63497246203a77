"""Where a request goes: policy, shared placement and breaker brought together, Redis or not."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Set
from contextlib import suppress
from itertools import count
from time import perf_counter
from typing import Literal

from pando_fleet.client import FleetError, FleetUnavailable
from pando_fleet.placement import Ask, NoReplica, Placement, Placer, PoolFull
from pando_fleet.settling import Failed
from pando_fleet.wire import Wire
from pando_router import rendezvous
from pando_router.bounded_log import BoundedLog
from pando_router.core.breaker import Breaker, BreakerState
from pando_router.core.in_flight import InFlight
from pando_router.core.shortage import Shortage
from pando_router.fleet_view import FleetView, Member, Target
from pando_router.live import Live
from pando_router.metrics import Metrics
from pando_router.policies import Policies
from pando_router.policies.loads import Loads
from pando_router.route import Lease, Prompt, Route
from pando_router.settings import PolicyName
from pando_router.shadow import Shadow

SETTLED_S = 0.1

logger = logging.getLogger("pando.router")


class Dispatcher:
    """Places prompts by the policy, and by what this router knows where Redis cannot help."""

    def __init__(
        self,
        wire: Wire,
        view: FleetView,
        policies: Policies,
        loads: Loads,
        in_flight: InFlight,
        breaker: Breaker,
        unhealthy: Set[str],
        metrics: Metrics,
        live: Live,
        full: Callable[[], Set[str]],
        write_failed: Failed,
        shadow: Callable[[], Shadow | None],
    ) -> None:
        """`unhealthy` are incarnations that fail their checks, kept up to date by whoever checks;
        `full` gives URLs of replicas that this router has no connection free to; `write_failed` is
        told what could not be written to Redis; `shadow` gives the one that looks on now."""
        self._wire = wire
        self._write_failed = write_failed
        self._shadow = shadow
        self._view = view
        self._policies = policies
        self._loads = loads
        self._in_flight = in_flight
        self._breaker = breaker
        self._unhealthy = unhealthy
        self._full = full
        self._metrics = metrics
        self._live = live
        self._placers: dict[str, Placer] = {}
        self._lease_prefix = uuid.uuid4().hex
        self._lease_numbers = count()
        self._log_refused = BoundedLog("a placement was refused", logging.ERROR)

    async def place(self, prompt: Prompt, tried: Collection[str]) -> Route | Shortage:
        """A replica outside `tried` (incarnations), or why there is none."""
        shortage = Shortage.NONE
        for target, members in self.candidates(prompt, tried):
            if full := self._full():
                members = tuple(m for m in members if m.beat.url not in full)
                if not members:
                    shortage = Shortage.FULL
                    continue
            policy = self._policies.name(target.pool, prompt.steering.policy)
            found = await self._place_in(target, members, policy, prompt)
            if isinstance(found, Route):
                return found
            shortage = found
        if shortage is Shortage.NONE:
            self._count(self._policies.name("", prompt.steering.policy), "none")
            if not tried and any(target.is_coming for target in prompt.targets):
                return Shortage.ASLEEP
        return shortage

    async def _place_in(
        self, target: Target, members: tuple[Member, ...], policy: PolicyName, prompt: Prompt
    ) -> Route | Shortage:
        picked = self._policies.of(target.pool, policy).pick(prompt, members)
        if not prompt.request.computes:
            return self._unleased(policy, "local", target, prompt, members, picked)
        while True:
            lease = await self._lease(target, prompt, policy, members, picked)
            if lease is Shortage.FULL:
                return Shortage.FULL
            if lease is None:
                roomy = tuple(member for member in members if self._has_room(member))
                if not roomy:
                    return Shortage.FULL
                kept = picked if picked in roomy else None
                return self._unleased(policy, "fallback", target, prompt, roomy, kept)
            chosen = lease.placement.chosen
            route = Route(target.pool, chosen.replica, chosen.incarnation, chosen.url, lease)
            if not self._breaker or self._breaker.state(route.incarnation) is not BreakerState.OPEN:
                self._count(policy, "shared")
                return route
            # Its one probe has left while this placement was under way.
            others = tuple(member for member in members if not self._is_out(member))
            if not others:
                self._count(policy, "shared")
                return route
            lease.placer.release(lease.placement)
            members, picked = others, None

    def _has_room(self, member: Member) -> bool:
        """By this router's own count, which is all there is without Redis."""
        most = self._live.settings.max_replica_requests
        if member.beat.max_requests:
            most = min(most, member.beat.max_requests)
        return self._in_flight[member.beat.incarnation] < most

    def choices(
        self, prompt: Prompt, tried: Collection[str] = ()
    ) -> tuple[Target, tuple[Member, ...]] | None:
        """The first of `candidates`."""
        return next(self.candidates(prompt, tried), None)

    def candidates(
        self, prompt: Prompt, tried: Collection[str]
    ) -> Iterator[tuple[Target, tuple[Member, ...]]]:
        """The pools that have replicas for this prompt, and which of them may be tried.

        Where several pools serve a model, each prompt start has its own order of them, so that its
        cache entries stay together. Breakers and health checks are obeyed unless they would leave
        none of a pool.
        """
        for target in _by_affinity(prompt):
            members = target.trusted
            if tried:
                members = tuple(m for m in members if m.beat.incarnation not in tried)
            if self._breaker or self._unhealthy:
                members = tuple(m for m in members if not self._is_out(m)) or members
            if members:
                yield target, members

    def _is_out(self, member: Member) -> bool:
        incarnation = member.beat.incarnation
        return (
            incarnation in self._unhealthy or self._breaker.state(incarnation) is BreakerState.OPEN
        )

    def placer(self, pool: str) -> Placer:
        if pool not in self._placers:
            self._placers[pool] = Placer(
                self._wire,
                pool,
                failed=self._write_failed,
                timeout_s=lambda: self._live.settings.placement_timeout,
            )
        return self._placers[pool]

    async def settle(self, timeout_s: float) -> None:
        """Writes what is queued for Redis, before it is disconnected."""
        await asyncio.gather(*(placer.settle(timeout_s) for placer in self._placers.values()))

    async def settled(self, prompt: Prompt) -> None:
        """Returns when what this router wrote of the prompt's pools until now is in Redis, or after
        SETTLED_S."""
        placers = (self._placers.get(target.pool) for target in prompt.targets)
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_S):
                for placer in filter(None, placers):
                    await placer.flush()

    def ask(
        self,
        target: Target,
        prompt: Prompt,
        members: Collection[Member],
        only: str | None = None,
        *,
        every: bool = False,
    ) -> Ask:
        """The question to the shared placement: one of `members`, or `only` that one."""
        barred: list[str] = []
        if len(members) < len(target.trusted):  # some have failed
            allowed = {member.beat.replica for member in members}
            barred = [m.beat.replica for m in target.members if m.beat.replica not in allowed]
        request, settings = prompt.request, self._live.settings
        return Ask(
            keys=prompt.keys,
            prompt_tokens=request.prompt_tokens(target.bytes_per_token),
            output_tokens=request.output_tokens(settings.expected_output_tokens),
            lease=f"{self._lease_prefix}-{next(self._lease_numbers)}",
            lease_ms=int(settings.lease_seconds * 1000),
            exclude=(*target.foreign, *barred),
            only=only,
            every=every,
            max_outstanding=settings.max_replica_requests,
            tenant=prompt.tenant.name,
            tenant_share=prompt.tenant.share,
        )

    async def _lease(
        self,
        target: Target,
        prompt: Prompt,
        policy: PolicyName,
        members: tuple[Member, ...],
        picked: Member | None,
    ) -> Lease | Literal[Shortage.FULL] | None:
        """FULL where each has all the requests that it may have; None where Redis is away, or knows
        none of the replicas that this router trusts."""
        if not self._view.redis_up:
            return None
        placer = self.placer(target.pool)
        sample = None
        if (shadow := self._shadow()) is not None:
            sample = shadow.begin(target.pool, policy, prompt, members)
        every = sample is not None or prompt.steering.explain or logger.isEnabledFor(logging.DEBUG)
        started = perf_counter()
        try:
            if picked is None:
                placement = await placer.place(self.ask(target, prompt, members, every=every))
            else:
                placement = await self._place_on(
                    placer, target, prompt, members, picked, every=every
                )
        except PoolFull:
            return Shortage.FULL
        except NoReplica:
            return None
        except (FleetUnavailable, TimeoutError) as error:
            self._view.redis_failed(error)
            return None
        except FleetError as error:  # Redis is there: this request alone goes on without it
            self._refused(error)
            return None
        self._metrics.placement_seconds.observe(perf_counter() - started)
        if sample is not None:
            sample.placed(placement)
        return Lease(placer, placement)

    def _refused(self, error: FleetError) -> None:
        self._metrics.placement_errors.inc()
        self._log_refused(error=str(error))

    async def _place_on(
        self,
        placer: Placer,
        target: Target,
        prompt: Prompt,
        members: tuple[Member, ...],
        picked: Member,
        *,
        every: bool,
    ) -> Placement:
        """On the replica that the policy picked, or where Redis knows better on another one."""
        try:
            name = picked.beat.replica
            return await placer.place(self.ask(target, prompt, members, name, every=every))
        except NoReplica:  # it drains or warms since this router last looked
            rest = [member for member in members if member is not picked]
            if not rest:
                raise
            return await placer.place(self.ask(target, prompt, rest, every=every))

    def _unleased(
        self,
        policy: PolicyName,
        outcome: str,
        target: Target,
        prompt: Prompt,
        members: tuple[Member, ...],
        picked: Member | None,
    ) -> Route:
        """Without Redis: what the policy picked, or else where the prompt's start belongs."""
        self._count(policy, outcome)
        if picked is None:
            by_name = {member.beat.replica: member for member in members}
            loads = {name: self._loads(member) for name, member in by_name.items()}
            picked = by_name[rendezvous.choose(prompt.affinity, loads)]
        beat = picked.beat
        return Route(target.pool, beat.replica, beat.incarnation, beat.url)

    def _count(self, policy: PolicyName, outcome: str) -> None:
        self._metrics.placements[policy, outcome].inc()


def _by_affinity(prompt: Prompt) -> tuple[Target, ...]:
    if len(prompt.targets) == 1:
        return prompt.targets
    by_pool = {target.pool: target for target in prompt.targets}
    return tuple(by_pool[pool] for pool in rendezvous.rank(prompt.affinity, list(by_pool)))
