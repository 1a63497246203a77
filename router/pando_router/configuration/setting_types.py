"""What the settings' fields are declared with: types that are more than one word, and the mark of
those that need a restart."""

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator
from pydantic_settings import NoDecode


@dataclass(frozen=True, slots=True)
class Restart:
    """In a field's `Annotated`: the router is built around it. All other settings can change while
    the router runs, and take effect on what exists already."""


RESTART = Restart()

Value = TypeVar("Value")


def _pairs(value: Any) -> Any:
    """ "a=1,b=2" as a mapping; what is no text is judged as it is."""
    if not isinstance(value, str):
        return value
    pairs: dict[str, str] = {}
    for item in filter(None, map(str.strip, value.split(","))):
        name, equals, what = item.partition("=")
        if not equals or not name.strip() or not what.strip():
            raise ValueError(f"{item!r} is not NAME=VALUE; several are parted by commas")
        pairs[name.strip()] = what.strip()
    return pairs


Pairs = Annotated[dict[str, Value], NoDecode, BeforeValidator(_pairs)]
"""`{a: 1, b: 2}` in YAML, and `a=1,b=2` as a flag or variable."""


def needing_restart(settings: type[BaseModel]) -> frozenset[str]:
    """Names of the fields that are marked RESTART."""
    fields = settings.model_fields.items()
    return frozenset(name for name, field in fields if RESTART in field.metadata)
