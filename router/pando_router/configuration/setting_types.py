"""Types of settings, and the mark of settings that need a restart."""

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator
from pydantic_settings import NoDecode


@dataclass(frozen=True, slots=True)
class Restart:
    """In a field's `Annotated`: the router is built around the value. All other settings can change
    while the router runs, and apply to everything that exists already."""


RESTART = Restart()

Value = TypeVar("Value")


def _pairs(value: Any) -> Any:
    """Parses "a=1,b=2" into a mapping; returns any other type unchanged."""
    if not isinstance(value, str):
        return value
    pairs: dict[str, str] = {}
    for item in filter(None, map(str.strip, value.split(","))):
        name, equals, what = item.partition("=")
        if not equals or not name.strip() or not what.strip():
            raise ValueError(f"{item!r} is not NAME=VALUE; separate several by commas")
        pairs[name.strip()] = what.strip()
    return pairs


Pairs = Annotated[dict[str, Value], NoDecode, BeforeValidator(_pairs)]
"""`{a: 1, b: 2}` in YAML, and `a=1,b=2` as a flag or variable."""


def needing_restart(settings: type[BaseModel]) -> frozenset[str]:
    """Names of the fields marked RESTART."""
    fields = settings.model_fields.items()
    return frozenset(name for name, field in fields if RESTART in field.metadata)
