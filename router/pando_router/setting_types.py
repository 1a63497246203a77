"""Types of settings that are more than one word: as a mapping in YAML, in one line elsewhere."""

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

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
