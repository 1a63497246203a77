"""The rules that there are, by name; docs/simulator.md says in a line what each does."""

from collections.abc import Callable, Mapping
from typing import get_args

from pando_router.configuration.settings import PolicyName
from pando_sim.fleet.routing.context import Context, RuleFactory
from pando_sim.fleet.routing.interfaces import Rule
from pando_sim.rules import dynamo, llm_d, pando, production_stack, smg, vllm
from pando_sim.spec import FleetSpec

Made = Callable[[FleetSpec], RuleFactory]
"""For a fleet: what makes the rule of each of its routers."""


def _own(policy: PolicyName) -> Made:
    return lambda spec: pando.factory(policy, spec)


def _peer(make: Callable[[Context, FleetSpec], Rule]) -> Made:
    return lambda spec: lambda context: make(context, spec)


RULES: Mapping[str, Made] = {
    **{policy: _own(policy) for policy in get_args(PolicyName)},
    "smg": _peer(lambda context, spec: smg.CacheAware(context)),
    "llm_d": _peer(lambda context, spec: llm_d.Scorers(context, spec.worker.page_size)),
    "dynamo": _peer(lambda context, spec: dynamo.KvRouter(context)),
    "production_stack": _peer(lambda context, spec: production_stack.LongestPrefix(context)),
    "vllm": _peer(lambda context, spec: vllm.LeastScore(context, spec.router.routers)),
}
