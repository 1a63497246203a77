"""How long a worker takes for its work: cost models, their files and their fitting."""

from pando_sim.cost.files import load, shipped
from pando_sim.cost.model import CostModel, tick
from pando_sim.cost.schema import CostModelError

__all__ = ["CostModel", "CostModelError", "load", "shipped", "tick"]
