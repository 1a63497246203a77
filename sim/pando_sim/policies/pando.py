"""Pando's own policies: the router's classes, with the same leases in the same Redis.

All of them end in the shared placement: a policy that chooses by itself leaves only the lease to
Redis; `cache_aware` (and `session`, without a session) also leaves the choice to it.

Source: `router/pando_router/policies`, the production code.
Simplified: a replica's load is its last heartbeat's or the router's own count, whichever is larger,
even while Redis is away (the router then uses its own count only). A session comes from the trace;
there is no `user`.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from pando_router.policies import POLICIES
from pando_router.policies.loads import Loads
from pando_router.policies.policy import PolicyKind
from pando_sim.fleet.routing.interfaces import Question
from pando_sim.policies.simulated import SimulatedPolicy
from pando_sim.spec import FleetSpec

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context
    from pando_sim.fleet.routing.shared_placement import SharedPlacement


def own() -> Iterator[SimulatedPolicy]:
    """Every policy of the router."""
    for kind in POLICIES.values():
        yield SimulatedPolicy(
            name=kind.name,
            whose="Pando",
            help=kind.help,
            source="`router/pando_router/policies/`",
            make=partial(_make, kind),
        )


def _make(kind: PolicyKind, context: "Context", spec: FleetSpec) -> "SharedPlacement":
    from pando_sim.fleet.routing.shared_placement import SharedPlacement

    policy = kind.make(Loads(context.flights.in_flight), context.random)

    def pick(question: Question) -> str | None:
        chosen = policy.pick(question, question.allowed)
        return chosen.name if chosen is not None else None

    return SharedPlacement(context, spec.router, pick)
