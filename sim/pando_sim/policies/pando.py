"""Pando's own policies: the router's classes, behind the same leases in the same Redis.

All of them end in the shared placement: a policy that chooses by itself leaves only the lease to
Redis, `cache_aware` (and `session`, without a session) leaves the choice to it too.

Source: `router/pando_router/placing/policies`, the code that serves.

Simplified: a replica's load is its last heartbeat's or the router's own count, whichever is larger,
also while Redis is away (the router then looks at its own count alone). A session is what the trace
says; there is no `user`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from pando_router.configuration.settings import PolicyName
from pando_router.placing.policies.cache_aware import CacheAware
from pando_router.placing.policies.least_loaded import LeastLoaded
from pando_router.placing.policies.power_of_two import PowerOfTwo
from pando_router.placing.policies.prefix_hash import PrefixHash
from pando_router.placing.policies.random_choice import RandomChoice
from pando_router.placing.policies.round_robin import RoundRobin
from pando_router.placing.policies.session import Session
from pando_sim.fleet.routing.context import Context, PolicyFactory
from pando_sim.fleet.routing.interfaces import Member, Question
from pando_sim.fleet.routing.shared_placement import SharedPlacement, affinity
from pando_sim.spec import FleetSpec


class _Policy(Protocol):
    """As the router's, whose types name more than a simulation has."""

    def pick(self, prompt: Any, members: Sequence[Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Steering:
    session: bytes


@dataclass(frozen=True, slots=True)
class _Asked:
    user: None = None


@dataclass(frozen=True, slots=True)
class _Prompt:
    """Of a request, what the router's policies look at."""

    affinity: bytes
    steering: _Steering
    request: _Asked = _Asked()


def factory(policy: PolicyName, spec: FleetSpec) -> PolicyFactory:
    """Of the router's policy with this name."""
    return partial(_rule, policy, spec)


def _rule(policy: PolicyName, spec: FleetSpec, context: Context) -> SharedPlacement:
    chooses = _make(policy, context)

    def pick(question: Question) -> str | None:
        chosen: Member | None = chooses.pick(_prompt(question), question.allowed)
        return chosen.name if chosen is not None else None

    return SharedPlacement(context, spec.router, pick)


def _make(policy: PolicyName, context: Context) -> _Policy:
    loads: Any = partial(_load, context)
    match policy:
        case "cache_aware":
            return CacheAware()
        case "round_robin":
            return RoundRobin()
        case "random":
            return RandomChoice(context.random)
        case "power_of_two":
            return PowerOfTwo(loads, context.random)
        case "least_loaded":
            return LeastLoaded(loads)
        case "prefix_hash":
            return PrefixHash(loads)
        case "session":
            return Session()


def _load(context: Context, member: Member) -> int:
    """As the router's `Loads`."""
    return max(member.beat.running + member.beat.waiting, context.in_flight(member))


def _prompt(question: Question) -> _Prompt:
    return _Prompt(affinity(question), _Steering(question.request.session.encode()))
