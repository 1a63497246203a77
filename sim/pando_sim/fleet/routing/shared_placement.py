"""`SharedPlacement`: Pando's own placement, with the same scripts in a real Redis as routers use.

Writes that nobody waits for happen when a router would write them: at once after a pause, otherwise
`EVERY_S` later or with the next placement.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pando_fleet.placement.lease import Lease
from pando_fleet.placement.placer import Ask, NoReplica, Placer, PoolCrowded, PoolFull
from pando_fleet.placement.settling import EVERY_S
from pando_fleet.redis.client import FleetUnavailable
from pando_router.core.alone import route_alone, with_room
from pando_router.core.route import Route, Shortage
from pando_sim.adapters import key_of
from pando_sim.fleet.routing.context import Context
from pando_sim.fleet.routing.interfaces import Question
from pando_sim.spec import RouterSpec

Pick = Callable[[Question], str | None]
"""Returns a replica's name if a policy of the router chooses; None leaves the choice to Redis."""


def _by_redis(question: Question) -> str | None:
    return None


class SharedPlacement:
    """A policy that places like `pando_router.placing.dispatch`."""

    def __init__(
        self, context: Context, spec: RouterSpec, pick: Pick = _by_redis, *, every: bool = False
    ) -> None:
        """`every`: routes name all candidates with their terms, which takes Redis longer."""
        self._context = context
        self._spec = spec
        self._pick = pick
        self._every = every
        self._placer = Placer(context.line, context.pool, context.redis_ms, every_s=None)
        self._lease_ms = round(1000 * spec.lease_s)
        self._wrote_s = -EVERY_S
        self._is_due = False
        self._renew()

    async def place(self, question: Question) -> Route | Shortage:
        picked = self._pick(question)
        self._placer.write()
        try:
            try:
                lease = await Lease.take(self._placer, self._ask(question, picked))
            except NoReplica as error:
                if picked is None or isinstance(error, PoolCrowded):
                    raise
                # It began to drain or warm since this router's last look.
                lease = await Lease.take(self._placer, self._ask(question, None, picked))
        except PoolFull:
            return Shortage.FULL
        except PoolCrowded as error:
            return Shortage.RETURNS if error.crowded.is_back else Shortage.CROWDED
        except (FleetUnavailable, NoReplica):  # Redis may be back, but empty
            return self._alone(question, picked)
        self.write_soon()
        chosen = lease.placement.chosen
        return Route(
            self._context.pool,
            chosen.replica,
            chosen.incarnation,
            chosen.url,
            _Written(lease, self),
            lease.placement,
            chosen.matched_chunks,
            chosen.matched_tokens,
        )

    def close(self) -> None:
        self._placer.write()

    def _renew(self) -> None:
        """Renews leases; the keeper's heartbeats and repairs are not simulated."""
        self._placer.renew(self._context.monotonic_s(), self._lease_ms)
        if self._placer.open:
            self.write_soon()
        self._context.after(self._lease_ms / 3000, self._renew)

    def write_soon(self) -> None:
        """Writes the queue when a router would write it."""
        if not self._is_due:
            self._is_due = True
            waits_s = self._wrote_s + EVERY_S - self._context.monotonic_s()
            self._context.after(max(0.0, waits_s), self._write)

    def _ask(self, question: Question, only: str | None, without: str | None = None) -> Ask:
        members, exclude = self._context.members(), []
        if len(question.allowed) < len(members):  # in the usual case, nothing is done per replica
            allowed = {member.name for member in question.allowed}
            exclude = [member.name for member in members if member.name not in allowed]
        if without is not None:
            exclude.append(without)
        return Ask(
            keys=question.keys,
            prompt_tokens=question.prompt_tokens,
            output_tokens=question.output_tokens,
            lease=question.lease,
            lease_ms=self._lease_ms,
            exclude=tuple(exclude),
            only=only,
            adapter=key_of(question.request.adapter),
            bounds_sessions=self._spec.bound_sessions,
            may_wait=question.may_wait,
            max_outstanding=self._spec.max_outstanding,
            every=self._every,
        )

    def _alone(self, question: Question, picked: str | None) -> Route | Shortage:
        """Places without Redis."""
        load = self._context.in_flight
        roomy = with_room(question.allowed, load, self._spec.max_outstanding)
        if not roomy:
            return Shortage.FULL
        kept = next((one for one in roomy if one.name == picked), None)
        adapter = key_of(question.request.adapter)
        return route_alone(self._context.pool, roomy, kept, question.affinity, load, adapter)

    def _write(self) -> None:
        self._is_due = False
        self._wrote_s = self._context.monotonic_s()
        self._placer.write()


@dataclass(frozen=True, slots=True)
class _Written:
    """A lease whose updates are written in virtual time."""

    lease: Lease
    policy: SharedPlacement

    def answered(self, *, complete: bool) -> None:
        self.lease.answered(complete=complete)
        self.policy.write_soon()

    def correct(self, chunks: int) -> None:
        self.lease.correct(chunks)
        self.policy.write_soon()

    def close(self) -> None:
        self.lease.close()
        self.policy.write_soon()
