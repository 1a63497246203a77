"""`SimulatedPolicy`: a policy's entry in the registry.

The settings have their names from there. So a policy's module imports for types only what only a
run needs, such as the simulated fleet: a mistake at the command line is reported before that
loads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pando_sim.fleet.routing.interfaces import Policy
from pando_sim.spec import FleetSpec

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context, PolicyFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPolicy:
    name: str
    whose: str  # the project that it belongs to, and its name there
    help: str  # completes "a request goes to"
    source: str  # as Markdown
    is_for_sessions: bool = False  # without agents' sessions, it does what another one does
    make: "Callable[[Context, FleetSpec], Policy]"

    def factory(self, spec: FleetSpec) -> "PolicyFactory":
        """Makes the policy of each router of a fleet."""
        return lambda context: self.make(context, spec)
