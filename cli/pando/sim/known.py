"""The placements and scalings that there are, as runs need them.

All of Pando's own policies place by the same leases in the same Redis; those that look at no cache
are the router's own classes, which choose and leave the lease to Redis.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pando_operator.resource.pool import WorkerPool
from pando_router.policies.least_loaded import LeastLoaded
from pando_router.policies.power_of_two import PowerOfTwo
from pando_router.policies.prefix_hash import PrefixHash
from pando_router.policies.random_choice import RandomChoice
from pando_router.policies.round_robin import RoundRobin
from pando_sim.fleet.interfaces import Member, Question, RouterContext, Rule, RuleFactory, Scaler
from pando_sim.fleet.shared_placement import SharedPlacement
from pando_sim.spec import FleetSpec

NO_SCALING = "none"

# The router's policies ask of a replica for its heartbeat alone, and of a prompt for its start: the
# types that they name hold more than a simulation has.
_Policy = Callable[[RouterContext], Any]


@dataclass(frozen=True, slots=True)
class _Start:
    """Of a prompt, what a policy looks at."""

    affinity: bytes


def _loads(context: RouterContext) -> Any:
    """As the router's `Loads`: what the last heartbeat counts, or this router's own requests."""

    def load(member: Member) -> int:
        return max(member.beat.running + member.beat.waiting, context.in_flight(member.name))

    return load


def _rule(make: _Policy, spec: FleetSpec, context: RouterContext) -> Rule:
    policy = make(context)

    def pick(question: Question) -> str:
        chosen: Member = policy.pick(_Start(question.keys[:8]), question.allowed)
        return chosen.name

    return SharedPlacement(context, spec.router, pick)


def _by_policy(make: _Policy) -> Callable[[FleetSpec], RuleFactory]:
    return lambda spec: partial(_rule, make, spec)


PLACEMENTS: Mapping[str, Callable[[FleetSpec], RuleFactory]] = {
    "cache_aware": lambda spec: lambda context: SharedPlacement(context, spec.router),
    "round_robin": _by_policy(lambda context: RoundRobin()),
    "random": _by_policy(lambda context: RandomChoice(context.random)),
    "power_of_two": _by_policy(lambda context: PowerOfTwo(_loads(context), context.random)),
    "least_loaded": _by_policy(lambda context: LeastLoaded(_loads(context))),
    "prefix_hash": _by_policy(lambda context: PrefixHash(_loads(context))),
}
SCALINGS: Mapping[str, Callable[[FleetSpec, WorkerPool], Scaler]] = {}
