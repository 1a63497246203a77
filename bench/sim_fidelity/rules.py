"""The router's own policies as rules of the simulator."""

from collections.abc import Callable, Sequence
from typing import Any

from pando_router.policies.least_loaded import LeastLoaded
from pando_router.policies.round_robin import RoundRobin
from pando_sim.fleet.interfaces import Member, Question, RouterContext, Rule, RuleFactory
from pando_sim.fleet.shared_placement import Pick, SharedPlacement
from pando_sim.spec import RouterSpec

Choose = Callable[[Any, Sequence[Any]], Any]
"""The router's `pick`, which looks at no prompt, and at nothing of a member but its heartbeat."""


def _round_robin(context: RouterContext) -> Choose:
    return RoundRobin().pick


def _least_loaded(context: RouterContext) -> Choose:
    def load(member: Member) -> int:
        beat = member.beat
        return max(beat.running + beat.waiting, context.in_flight(member))

    loads: Any = load
    return LeastLoaded(loads).pick


_CHOICES: dict[str, Callable[[RouterContext], Choose]] = {
    "round_robin": _round_robin,
    "least_loaded": _least_loaded,
}


def rule_of(policy: str, spec: RouterSpec) -> RuleFactory:
    """Of one of the router's policies, cache_aware included."""

    def make(context: RouterContext) -> Rule:
        if policy == "cache_aware":
            return SharedPlacement(context, spec)
        return SharedPlacement(context, spec, _pick(_CHOICES[policy](context)))

    return make


def _pick(choose: Choose) -> Pick:
    def pick(question: Question) -> str:
        member: Member = choose(None, question.allowed)
        return member.name

    return pick
