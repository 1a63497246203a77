"""Checks a value against a structural schema and says, in words, all that is wrong with it.

It covers what the schemas of the WorkerPool use. A value is repeated in a message only where it is
one of a choice, a number or a name: environment variables may hold secrets.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pando_operator.resource.base import Schema

_TYPES = {
    "string": (str, "a string"),
    "integer": (int, "an integer"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
    "array": ((list, tuple), "a list"),
    "object": (Mapping, "an object"),
}


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """`path` names the field from the object's root, `message` goes on as its sentence."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


def problems(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    """Every way in which `value`, which is at `path`, does not fit its schema."""
    if schema.get("x-kubernetes-int-or-string"):
        yield from _int_or_string(value, schema, path)
        return
    kind = schema["type"]
    if not _is_of(kind, value):
        yield Problem(path, f"must be {_TYPES[kind][1]}, not {_name(value)}")
        return
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(map(str, schema["enum"]))
        yield Problem(
            path, f"must be one of {choices}, not {value!r}{_close(value, schema['enum'])}"
        )
    if kind == "object":
        yield from _object(value, schema, path)
    elif kind == "array":
        yield from _array(value, schema, path)
    elif kind == "string":
        yield from _string(value, schema, path)
    elif kind in ("integer", "number"):
        yield from _number(value, schema, path)


def _object(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[Problem]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    known: Mapping[str, Schema] = schema.get("properties", {})
    others: Schema | None = schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem(f"{path}.{name}", "is required")
    if len(value) > schema.get("maxProperties", len(value)):
        yield Problem(path, f"has {len(value)} entries, more than {schema['maxProperties']}")
    for name, child in value.items():
        below = known.get(name, others)
        if below is None:
            yield Problem(f"{path}.{name}", f"does not exist{_close(name, known)}")
        else:
            yield from problems(
                child, below, f"{path}.{name}" if name in known else f"{path}[{name!r}]"
            )


def _array(value: list[Any], schema: Schema, path: str) -> Iterator[Problem]:
    if len(value) < schema.get("minItems", 0):
        yield Problem(path, f"needs at least {schema['minItems']} entries")
    if len(value) > schema.get("maxItems", len(value)):
        yield Problem(path, f"has {len(value)} entries, more than {schema['maxItems']}")
    for index, item in enumerate(value):
        yield from problems(item, schema["items"], f"{path}[{index}]")
    for key in schema.get("x-kubernetes-list-map-keys", ()):
        seen = set()
        for index, item in enumerate(value):
            name = item.get(key) if isinstance(item, Mapping) else None
            if name is not None and name in seen:
                yield Problem(f"{path}[{index}].{key}", f"is {name!r} a second time")
            seen.add(name)


def _string(value: str, schema: Schema, path: str) -> Iterator[Problem]:
    if len(value) < schema.get("minLength", 0):
        yield Problem(path, "must not be empty")
    if len(value) > schema.get("maxLength", len(value)):
        yield Problem(path, f"has {len(value)} characters, more than {schema['maxLength']}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield Problem(path, f"must match {schema['pattern']}")


def _number(value: float, schema: Schema, path: str) -> Iterator[Problem]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        words = "above" if schema.get("exclusiveMinimum") else "at least"
        yield Problem(path, f"must be {words} {low}, not {value}")
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        words = "below" if schema.get("exclusiveMaximum") else "at most"
        yield Problem(path, f"must be {words} {high}, not {value}")


def _int_or_string(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    if not _is_of("integer", value) and not _is_of("string", value):
        yield Problem(path, f"must be a number or a string, not {_name(value)}")
    elif not re.search(schema.get("pattern", ""), str(value)):
        yield Problem(path, f"must be a quantity such as 4, 500m or 8Gi, not {value!r}")


def _is_of(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind][0])  # type: ignore[arg-type]


def _name(value: Any) -> str:
    if value is None:
        return "null"
    return next((words for kind, (_, words) in _TYPES.items() if _is_of(kind, value)), "that")


def _close(name: Any, known: Any) -> str:
    close = get_close_matches(str(name), list(map(str, known)), n=1)
    return f"; did you mean {close[0]}?" if close else ""
