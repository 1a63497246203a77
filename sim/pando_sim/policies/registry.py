"""The policies that there are, by name; docs/simulator.md says in a line what each does."""

from collections.abc import Callable, Mapping
from typing import get_args

from pando_router.configuration.settings import PolicyName
from pando_sim.fleet.routing.context import Context, PolicyFactory
from pando_sim.fleet.routing.interfaces import Policy
from pando_sim.policies import dynamo, llm_d, pando, production_stack, smg, vllm
from pando_sim.spec import FleetSpec

Made = Callable[[FleetSpec], PolicyFactory]
"""For a fleet: what makes the policy of each of its routers."""


def _own(policy: PolicyName) -> Made:
    return lambda spec: pando.factory(policy, spec)


def _peer(make: Callable[[Context, FleetSpec], Policy]) -> Made:
    return lambda spec: lambda context: make(context, spec)


POLICIES: Mapping[str, Made] = {
    **{policy: _own(policy) for policy in get_args(PolicyName)},
    "smg": _peer(smg.make),
    "llm_d": _peer(llm_d.make),
    "dynamo": _peer(dynamo.make),
    "production_stack": _peer(production_stack.make),
    "vllm": _peer(vllm.make),
}
