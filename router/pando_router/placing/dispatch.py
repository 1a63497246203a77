"""Places requests: combines policy, shared placement and breaker, with Redis or without it."""

import logging
from collections.abc import Callable, Collection, Iterator, Set
from itertools import count
from time import perf_counter

from msgspec import structs

from pando_fleet.current import Current
from pando_fleet.placement.lease import Lease
from pando_fleet.placement.placer import Ask, NoReplica, Placer, PoolCrowded, PoolFull
from pando_fleet.redis.client import FleetError, FleetUnavailable
from pando_router.configuration.live import Live
from pando_router.configuration.settings import PolicyName
from pando_router.core import rendezvous
from pando_router.core.alone import route_alone, with_room
from pando_router.core.flight import Flight, Flights
from pando_router.core.route import Route, Shortage
from pando_router.fleet_view.snapshot import Member, Target
from pando_router.fleet_view.view import FleetView
from pando_router.placing.placers import Placers
from pando_router.placing.pool_policies import PoolPolicies
from pando_router.placing.route import Prompt
from pando_router.placing.shadow import Shadow
from pando_router.policies.loads import Loads
from pando_router.telemetry.bounded_log import BoundedLog
from pando_router.telemetry.metrics import Metrics

logger = logging.getLogger("pando.router")


class Dispatcher:
    """Places prompts by the policy through Redis, else by what this router knows itself."""

    def __init__(
        self,
        live: Live,
        view: FleetView,
        flights: Flights,
        placers: Placers,
        policies: PoolPolicies,
        full: Callable[[], Set[str]],
        shadow: Current[Shadow | None],
        metrics: Metrics,
    ) -> None:
        """`full` returns the URLs of replicas to which this router has no free connection."""
        self._live = live
        self._view = view
        self._flights = flights
        self._placers = placers
        self._policies = policies
        self._loads = Loads(flights.in_flight)
        self._full = full
        self._shadow = shadow
        self._metrics = metrics
        self._lease_numbers = count()
        self._log_refused = BoundedLog("a placement was refused", logging.ERROR)

    async def place(self, prompt: Prompt, barred: Collection[str]) -> Flight | Shortage:
        """A flight to a replica outside `barred` (incarnations), or why there is none."""
        shortage = Shortage.NONE
        for target, members in self.candidates(prompt, barred):
            if full := self._full():
                members = tuple(m for m in members if m.beat.url not in full)
                if not members:
                    shortage = Shortage.FULL
                    continue
            policy = self._policies.name(target.pool, prompt.steering.policy)
            found = await self._place_in(target, members, policy, prompt)
            if isinstance(found, Route):
                return Flight(self._flights, found, prompt.request.prompt_bytes)
            shortage = found
        if shortage is Shortage.NONE:
            self._metrics.placements[self._policies.name("", prompt.steering.policy), "none"].inc()
            if not barred and any(target.is_coming for target in prompt.targets):
                return Shortage.ASLEEP
        return shortage

    async def _place_in(
        self, target: Target, members: tuple[Member, ...], policy: PolicyName, prompt: Prompt
    ) -> Route | Shortage:
        picked = self._policies.of(target.pool, policy).pick(prompt, members)
        if not prompt.request.computes:
            self._metrics.placements[policy, "local"].inc()
            return self._alone(target, members, picked, policy, prompt)
        while True:
            lease = await self._lease(target, prompt, policy, members, picked)
            if isinstance(lease, Shortage):
                return lease
            if lease is None:
                return self._place_alone(target, members, picked, policy, prompt)
            incarnation = lease.placement.chosen.incarnation
            others = members
            if self._flights.is_open(incarnation):
                # Another request became the breaker's one probe during this placement.
                others = tuple(m for m in members if not self._flights.is_out(m.beat.incarnation))
            if others is members or not others:
                self._metrics.placements[policy, "shared"].inc()
                return _leased(target.pool, policy, lease)
            lease.close()
            members, picked = others, None

    def _place_alone(
        self,
        target: Target,
        members: tuple[Member, ...],
        picked: Member | None,
        policy: PolicyName,
        prompt: Prompt,
    ) -> Route | Shortage:
        """Places without Redis."""
        in_flight, most = self._flights.in_flight, self._live.settings.max_replica_requests
        roomy = with_room(members, lambda member: in_flight[member.beat.incarnation], most)
        if not roomy:
            return Shortage.FULL
        self._metrics.placements[policy, "fallback"].inc()
        kept = picked if picked in roomy else None
        return self._alone(target, roomy, kept, policy, prompt)

    def _alone(
        self,
        target: Target,
        members: tuple[Member, ...],
        picked: Member | None,
        policy: PolicyName,
        prompt: Prompt,
    ) -> Route:
        found = route_alone(
            target.pool, members, picked, prompt.affinity, self._loads, target.adapter_key
        )
        return structs.replace(found, policy=policy)

    def candidates(
        self, prompt: Prompt, barred: Collection[str]
    ) -> Iterator[tuple[Target, tuple[Member, ...]]]:
        """The pools that may serve this prompt, each with its members that may be tried.

        If several pools serve a model, each prompt start has its own order of them, so that its
        cache entries stay in one pool.
        """
        targets = prompt.targets
        for target in targets if len(targets) == 1 else _by_affinity(prompt):
            if members := self._flights.usable(target.trusted, barred):
                yield target, members

    def placer(self, pool: str) -> Placer:
        return self._placers.of(pool)

    def ask(
        self,
        target: Target,
        prompt: Prompt,
        members: Collection[Member],
        only: str | None = None,
        *,
        every: bool = False,
    ) -> Ask:
        """The request to the shared placement: for one of `members`, or `only` the named one."""
        barred: list[str] = []
        if len(members) < len(target.trusted):  # some are excluded
            allowed = {member.beat.replica for member in members}
            barred = [m.beat.replica for m in target.members if m.beat.replica not in allowed]
        request, settings = prompt.request, self._live.settings
        return Ask(
            keys=prompt.keys,
            prompt_tokens=request.prompt_tokens(target.bytes_per_token),
            output_tokens=request.output_tokens(settings.expected_output_tokens),
            lease=f"{self._placers.router}-{next(self._lease_numbers)}",
            lease_ms=int(settings.lease_seconds * 1000),
            exclude=(*target.foreign, *barred),
            only=only,
            adapter=target.adapter_key,
            every=every,
            bounds_sessions=settings.bound_sessions,
            may_wait=prompt.may_be_held_back,
            session=prompt.session if settings.bound_sessions else b"",
            max_outstanding=settings.max_replica_requests,
            tenant=prompt.tenant.name,
            tenant_share=prompt.tenant.share,
            within_s=prompt.within_s,
        )

    async def _lease(
        self,
        target: Target,
        prompt: Prompt,
        policy: PolicyName,
        members: tuple[Member, ...],
        picked: Member | None,
    ) -> Lease | Shortage | None:
        """FULL if each member is at its limit of requests; CROWDED or RETURNS if the memory has no
        room for its session; None if Redis is away, refuses writes or knows none of the replicas
        that this router trusts."""
        if not self._view.is_up(target.pool):
            return None
        placer = self._placers.of(target.pool)
        sample = None
        if (shadow := self._shadow.now) is not None:
            sample = shadow.begin(target.pool, policy, prompt, members)
        every = sample is not None or prompt.steering.explain or logger.isEnabledFor(logging.DEBUG)
        started = perf_counter()
        try:
            if picked is None:
                ask = self.ask(target, prompt, members, every=every)
                lease = Lease(placer, await placer.place(ask), ask.keys)
            else:
                lease = await self._place_on(placer, target, prompt, members, picked, every=every)
        except PoolFull:
            return Shortage.FULL
        except PoolCrowded as error:
            return Shortage.RETURNS if error.crowded.is_back else Shortage.CROWDED
        except NoReplica:
            return None
        except (FleetUnavailable, TimeoutError) as error:
            if prompt.within_s is None:  # else its limit was shorter than a healthy Redis may need
                self._view.redis.failed(target.pool, error)
            return None
        except FleetError as error:  # Redis is up, so only this request is placed without it
            self._metrics.placement_errors.inc()
            self._log_refused(error=str(error))
            return None
        self._metrics.placement_seconds.observe(perf_counter() - started)
        if sample is not None:
            sample.placed(lease.placement)
        return lease

    async def _place_on(
        self,
        placer: Placer,
        target: Target,
        prompt: Prompt,
        members: tuple[Member, ...],
        picked: Member,
        *,
        every: bool,
    ) -> Lease:
        """Places on the replica that the policy picked, or on another if Redis refuses it."""
        try:
            name = picked.beat.replica
            return await Lease.take(placer, self.ask(target, prompt, members, name, every=every))
        except PoolCrowded:
            raise
        except NoReplica:  # it began to drain or warm since this router's last look
            rest = [member for member in members if member is not picked]
            if not rest:
                raise
            return await Lease.take(placer, self.ask(target, prompt, rest, every=every))


def _leased(pool: str, policy: PolicyName, lease: Lease) -> Route:
    chosen = lease.placement.chosen
    return Route(
        pool,
        chosen.replica,
        chosen.incarnation,
        chosen.url,
        lease,
        lease.placement,
        chosen.matched_chunks,
        chosen.matched_tokens,
        policy,
    )


def _by_affinity(prompt: Prompt) -> tuple[Target, ...]:
    by_pool = {target.pool: target for target in prompt.targets}
    return tuple(by_pool[pool] for pool in rendezvous.rank(prompt.affinity, list(by_pool)))
