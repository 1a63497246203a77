"""`SimulatedPolicy`: a policy's entry in the registry."""

from collections.abc import Callable
from dataclasses import dataclass

from pando_sim.fleet.routing.context import Context, PolicyFactory
from pando_sim.fleet.routing.interfaces import Policy
from pando_sim.spec import FleetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPolicy:
    name: str
    whose: str  # the project that it belongs to, and its name there
    help: str  # completes "a request goes to"
    source: str  # as Markdown
    make: Callable[[Context, FleetSpec], Policy]

    def factory(self, spec: FleetSpec) -> PolicyFactory:
        """Makes the policy of each router of a fleet."""
        return lambda context: self.make(context, spec)
