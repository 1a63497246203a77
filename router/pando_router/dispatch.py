"""Where a request goes: policy, shared placement and breaker brought together, Redis or not."""

import asyncio
import logging
import uuid
from collections.abc import Collection
from dataclasses import asdict
from itertools import count
from time import perf_counter

from pando_fleet.client import FleetError, RedisClient
from pando_fleet.placement import Ask, NoReplica, Placement, Placer
from pando_router import rendezvous
from pando_router.breaker import Breaker, BreakerState
from pando_router.fleet_view import FleetView, Member, Target
from pando_router.metrics import Metrics
from pando_router.policies import Policies
from pando_router.policies.loads import Loads
from pando_router.route import Lease, Prompt, Route
from pando_router.settings import PolicyName, RouterSettings

logger = logging.getLogger("pando.router")


class Dispatcher:
    """Places prompts by the policy, and by what this router knows where Redis cannot help."""

    def __init__(
        self,
        redis: RedisClient,
        view: FleetView,
        policies: Policies,
        loads: Loads,
        breaker: Breaker,
        metrics: Metrics,
        settings: RouterSettings,
    ) -> None:
        self._redis = redis
        self._view = view
        self._policies = policies
        self._loads = loads
        self._breaker = breaker
        self._metrics = metrics
        self._settings = settings
        self._placers: dict[str, Placer] = {}
        self._lease_prefix = uuid.uuid4().hex
        self._lease_numbers = count()

    async def place(self, prompt: Prompt, tried: Collection[str]) -> Route | None:
        """A replica outside `tried` (incarnations), or None when no pool has one."""
        found = self.choices(prompt, tried)
        if found is None:
            self._count(self._policies.name("", prompt.steering.policy), "none")
            return None
        target, members = found
        policy = self._policies.name(target.pool, prompt.steering.policy)
        picked = self._policies.of(target.pool, policy).pick(prompt, members)
        if not prompt.request.computes:
            return self._unleased(policy, "local", target, prompt, members, picked)
        lease = await self._lease(target, prompt, members, picked)
        if lease is not None:
            self._count(policy, "shared")
            chosen = lease.placement.chosen
            return Route(target.pool, chosen.replica, chosen.incarnation, chosen.url, lease)
        return self._unleased(policy, "fallback", target, prompt, members, picked)

    def choices(
        self, prompt: Prompt, tried: Collection[str] = ()
    ) -> tuple[Target, tuple[Member, ...]] | None:
        """The first pool that has replicas for this prompt, and which of them may be tried.

        Where several pools serve a model, each prompt start has its own first pool, so that its
        cache entries stay together. Breakers are obeyed unless they would leave none.
        """
        for target in _by_affinity(prompt):
            members = target.trusted
            if tried:
                members = tuple(m for m in members if m.beat.incarnation not in tried)
            if self._breaker:
                state = self._breaker.state
                members = (
                    tuple(m for m in members if state(m.beat.incarnation) is not BreakerState.OPEN)
                    or members
                )
            if members:
                return target, members
        return None

    def placer(self, pool: str) -> Placer:
        if pool not in self._placers:
            self._placers[pool] = Placer(self._redis, pool)
        return self._placers[pool]

    def ask(
        self, target: Target, prompt: Prompt, members: Collection[Member], only: str | None = None
    ) -> Ask:
        """The question to the shared placement: one of `members`, or `only` that one."""
        barred: list[str] = []
        if len(members) < len(target.trusted):  # some have failed
            allowed = {member.beat.replica for member in members}
            barred = [m.beat.replica for m in target.members if m.beat.replica not in allowed]
        request, settings = prompt.request, self._settings
        return Ask(
            keys=prompt.keys,
            prompt_tokens=request.prompt_tokens(target.bytes_per_token),
            output_tokens=request.output_tokens(settings.expected_output_tokens),
            lease=f"{self._lease_prefix}-{next(self._lease_numbers)}",
            lease_ms=int(settings.lease_seconds * 1000),
            exclude=(*target.foreign, *barred),
            only=only,
        )

    async def _lease(
        self, target: Target, prompt: Prompt, members: tuple[Member, ...], picked: Member | None
    ) -> Lease | None:
        """None where Redis is away, or knows none of the replicas that this router trusts."""
        if not self._view.redis_up:
            return None
        placer = self.placer(target.pool)
        started = perf_counter()
        try:
            async with asyncio.timeout(self._settings.placement_timeout):
                if picked is None:
                    placement = await placer.place(self.ask(target, prompt, members))
                else:
                    placement = await self._place_on(placer, target, prompt, members, picked)
        except NoReplica:
            return None
        except (FleetError, TimeoutError) as error:
            self._view.redis_failed(error)
            return None
        self._metrics.placement_seconds.observe(perf_counter() - started)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("placed", extra={"pool": target.pool, **asdict(placement.chosen)})
        return Lease(placer, placement)

    async def _place_on(
        self,
        placer: Placer,
        target: Target,
        prompt: Prompt,
        members: tuple[Member, ...],
        picked: Member,
    ) -> Placement:
        """On the replica that the policy picked, or where Redis knows better on another one."""
        try:
            return await placer.place(self.ask(target, prompt, members, picked.beat.replica))
        except NoReplica:  # it drains or warms since this router last looked
            rest = [member for member in members if member is not picked]
            if not rest:
                raise
            return await placer.place(self.ask(target, prompt, rest))

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
        self._metrics.placements.labels(policy, outcome).inc()


def _by_affinity(prompt: Prompt) -> tuple[Target, ...]:
    if len(prompt.targets) == 1:
        return prompt.targets
    by_pool = {target.pool: target for target in prompt.targets}
    return tuple(by_pool[pool] for pool in rendezvous.rank(prompt.affinity, list(by_pool)))
