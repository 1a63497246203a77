"""Loads cost models by name or path; those in `models/` are included in Pando."""

from importlib.resources import files
from pathlib import Path

import msgspec

from pando_fleet.misread import misread
from pando_sim.cost.model import CostModel
from pando_sim.cost.schema import CostFile, CostModelError

_SHIPPED = files("pando_sim.cost") / "models"


def shipped() -> list[str]:
    """The names of the included ones, sorted."""
    names = (entry.name for entry in _SHIPPED.iterdir())
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def load(name_or_path: str) -> CostModel:
    """Loads an included model by its name, any other by its path. Raises CostModelError."""
    if name_or_path in shipped():
        return CostModel(parse((_SHIPPED / f"{name_or_path}.json").read_bytes(), name_or_path))
    path = Path(name_or_path)
    if path.suffix != ".json" and not path.exists():
        raise CostModelError(
            f"there is no cost model {name_or_path!r}; choose one of {', '.join(shipped())}, or"
            " the path of a file that `pando sim calibrate` wrote"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CostModelError(f"cost model {path}: {error.strerror}") from None
    return CostModel(parse(data, str(path)))


def parse(data: bytes, origin: str) -> CostFile:
    """Raises CostModelError, which names `origin`, the field and the problem."""
    try:
        return msgspec.json.decode(data, type=CostFile)
    except msgspec.DecodeError as error:
        raise CostModelError(f"cost model {origin}: {misread(error).about('the file')}") from None


def render(file: CostFile) -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"
