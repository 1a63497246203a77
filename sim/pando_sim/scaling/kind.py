"""`ScalerKind`: a scaler's entry in the registry, and what its controller is.

The settings have their names from there, so this module imports for types only what only a run
needs: a mistake at the command line is reported before the simulated fleet loads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pando_operator.resource.pool import WorkerPool
    from pando_sim.fleet.control import FleetControl
    from pando_sim.scaling.cluster import Cluster
    from pando_sim.spec import FleetSpec


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the wanted number of replicas."""

    before: int
    after: int
    reason: str


class Controller(Protocol):
    """Scales a pool by some rule."""

    def is_due(self, fleet: "FleetControl", cluster: "Cluster") -> bool: ...

    async def look(self, fleet: "FleetControl", cluster: "Cluster") -> Change | None:
        """Observes and acts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerKind:
    name: str
    help: str  # what it follows; as Markdown
    controller: "Callable[[FleetSpec, WorkerPool], Controller]"
    is_operator: bool = False  # sets marks in Redis and readiness gates
