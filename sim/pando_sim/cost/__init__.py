"""How long a worker takes for its work.

schema.py      the file of a cost model
models/        those that ship, one JSON file each
files.py       finds and reads them
model.py       seconds of a step, of its numbers
calibration/   fits the numbers to a running worker
"""

from pando_sim.cost.files import load, shipped
from pando_sim.cost.model import CostModel, tick
from pando_sim.cost.schema import CostModelError

__all__ = ["CostModel", "CostModelError", "load", "shipped", "tick"]
