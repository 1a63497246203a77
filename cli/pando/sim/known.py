"""The placements and scalings that there are, as runs need them."""

from collections.abc import Callable, Mapping

from pando_operator.resource.pool import WorkerPool
from pando_sim.fleet.interfaces import RuleFactory, Scaler
from pando_sim.rules import RULES
from pando_sim.scaling.scalers import SCALERS
from pando_sim.spec import FleetSpec

NO_SCALING = "none"

PLACEMENTS: Mapping[str, Callable[[FleetSpec], RuleFactory]] = RULES
SCALINGS: Mapping[str, Callable[[FleetSpec, WorkerPool], Scaler]] = SCALERS
