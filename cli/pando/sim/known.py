"""The placements, scalings and faults that there are, as runs need them."""

from collections.abc import Callable, Mapping

from pando_operator.resource.pool import WorkerPool
from pando_sim.fleet.interfaces import Fault, RuleFactory, Scaler
from pando_sim.fleet.shared_placement import SharedPlacement
from pando_sim.spec import FleetSpec

NO_SCALING = "none"

PLACEMENTS: Mapping[str, Callable[[FleetSpec], RuleFactory]] = {
    "cache_aware": lambda spec: lambda context: SharedPlacement(context, spec.router)
}
SCALINGS: Mapping[str, Callable[[FleetSpec, WorkerPool], Scaler]] = {}


class FaultError(Exception):
    pass


def parse_fault(text: str) -> Fault:
    raise FaultError(text)
