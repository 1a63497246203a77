"""`Fault`: something that happens to a simulated fleet at a time."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pando_sim.fleet.control import FleetControl


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    what: str  # its name in plots
    act: "Callable[[FleetControl], Awaitable[str]]"
    """Returns why it could not happen; None if it did."""
