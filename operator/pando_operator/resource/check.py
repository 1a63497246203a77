"""Checks a value against a structural schema and describes every problem in words.

It uses `jsonschema` with the draft on which OpenAPI 3.0 is based, plus the keywords that Kubernetes
adds. Messages show only choices, numbers and names, since environment variables may hold secrets.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from jsonschema import Draft4Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from pando_operator.resource.base import Schema

_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """`path` names the field from the object's root; `message` completes the sentence."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


def problems(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    """Every way in which `value`, found at `path`, violates the schema."""
    errors = list(_Structural(schema).iter_errors(value))
    mistyped = {tuple(error.path) for error in errors if error.validator == "type"}
    for error in errors:
        if error.validator == "type" or tuple(error.path) not in mistyped:
            yield Problem(joined(path, error.path), _sentence(error))


def unknown(value: Any, schema: Schema) -> Iterator[tuple[str | int, ...]]:
    """The paths of the fields that the schema does not have; those that the API server would drop
    if it had this schema."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from ((index, *rest) for rest in unknown(item, schema.get("items", {})))
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    known, others = schema.get("properties"), schema.get("additionalProperties")
    for name, inner in value.items():
        if known is not None and name in known:
            yield from ((name, *rest) for rest in unknown(inner, known[name]))
        elif isinstance(others, dict):
            yield from ((name, *rest) for rest in unknown(inner, others))
        elif known is not None:
            yield (name,)


def joined(path: str, parts: Iterable[str | int]) -> str:
    """Such as spec.template.resources.limits['nvidia.com/gpu'], or spec.scaling.schedules[0]."""
    for part in parts:
        plain = isinstance(part, str) and part.replace("_", "").isalnum()
        path += f".{part}" if plain else f"[{part!r}]"
    return path


def _sentence(error: ValidationError) -> str:
    value: Any = error.instance
    right: Any = error.validator_value
    schema: Any = error.schema
    match error.validator:
        case "type":
            return f"must be {_TYPES[right]}, not {_kind(value)}"
        case "anyOf":  # of x-kubernetes-int-or-string
            return f"must be a number or a string, not {_kind(value)}"
        case "enum":
            choices = ", ".join(map(str, right))
            return f"must be one of {choices}, not {value!r}{_close(value, right)}"
        case "pattern" if schema.get("x-kubernetes-int-or-string"):
            return f"must be a quantity such as 4, 500m or 8Gi, not {value!r}"
        case "pattern":
            return f"must match {right}"
        case "minimum":
            words = "above" if schema.get("exclusiveMinimum") else "at least"
            return f"must be {words} {right}, not {value}"
        case "maximum":
            words = "below" if schema.get("exclusiveMaximum") else "at most"
            return f"must be {words} {right}, not {value}"
        case "minLength":
            return "must not be empty"
        case "maxLength":
            return f"has {len(value)} characters, must have at most {right}"
        case "minItems":
            return f"needs at least {right} entries"
        case "maxItems" | "maxProperties":
            return f"has {len(value)} entries, must have at most {right}"
    return error.message  # from the checks below


def _known_only(
    validator: Any, known: Mapping[str, Schema], value: Any, schema: Schema
) -> Iterator[ValidationError]:
    """Refuses fields that `properties` does not name."""
    yield from Draft4Validator.VALIDATORS["properties"](validator, known, value, schema)
    for name in value if isinstance(value, dict) else ():
        if name not in known:
            yield ValidationError(f"does not exist{_close(name, known)}", path=[name])


def _typed(validator: Any, name: str, value: Any, schema: Schema) -> Iterator[ValidationError]:
    """Allows null for a field that has OpenAPI's `nullable`."""
    if value is not None or not schema.get("nullable"):
        yield from Draft4Validator.VALIDATORS["type"](validator, name, value, schema)


def _required(
    validator: Any, names: list[str], value: Any, schema: Schema
) -> Iterator[ValidationError]:
    """Reports a missing field at its own path."""
    for name in names if isinstance(value, dict) else ():
        if name not in value:
            yield ValidationError("is required", path=[name])


def _unique_keys(
    validator: Any, keys: list[str], value: Any, schema: Schema
) -> Iterator[ValidationError]:
    """Refuses two items of a list with the same key."""
    for key in keys:
        seen = set()
        for index, item in enumerate(value if isinstance(value, list) else ()):
            name = item.get(key) if isinstance(item, dict) else None
            if isinstance(name, str) and name in seen:
                yield ValidationError(f"is {name!r} a second time", path=[index, key])
            seen.add(name)


_Structural = extend(  # type: ignore[no-untyped-call]
    Draft4Validator,
    {
        "properties": _known_only,
        "required": _required,
        "type": _typed,
        "x-kubernetes-list-map-keys": _unique_keys,
    },
)


def _kind(value: Any) -> str:
    is_type = Draft4Validator.TYPE_CHECKER.is_type
    return next(words for name, words in _TYPES.items() if is_type(value, name))


def _close(name: Any, known: Iterable[Any]) -> str:
    close = get_close_matches(str(name), list(map(str, known)), n=1)
    return f"; did you mean {close[0]}?" if close else ""
