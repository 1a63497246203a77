"""Turns parameters that a model writes as plain text into JSON, by their schemas.

A string parameter is written without quotes and escapes; everything else as JSON, or with Python's
booleans and None, as some chat templates show them to models.
"""

import json
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

_PYTHON = {"True": "true", "False": "false", "None": "null"}
_KINDS = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
_MAX_REFERENCES = 8


class Reading(Enum):
    STRING = auto()  # the text itself
    JSON = auto()  # JSON if it is valid, else the text itself
    # JSON if it is valid and of a type that the schema allows, else the text itself.
    EITHER = auto()


def schema_of(parameters: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """A parameter's own schema; None if the tool's schema lacks the parameter."""
    properties = parameters.get("properties")
    schema = properties.get(name) if isinstance(properties, dict) else None
    return _resolved(schema, parameters) if isinstance(schema, dict) else None


def reading(parameters: Mapping[str, Any], name: str) -> Reading:
    """How the value of a tool's parameter is read."""
    kinds = _kinds_of(parameters, name)
    if kinds == {"string"}:
        return Reading.STRING
    return Reading.JSON if kinds and "string" not in kinds else Reading.EITHER


def as_json(text: str, parameters: Mapping[str, Any], name: str) -> str:
    """A complete value, of a reading other than STRING, as JSON text."""
    bare = text.strip()
    bare = _PYTHON.get(bare, bare)
    try:
        value = json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    kinds, kind = _kinds_of(parameters, name), _KINDS[type(value)]
    fits = not kinds or kind in kinds or (kind == "integer" and "number" in kinds)
    return bare if fits or "string" not in kinds else json.dumps(text, ensure_ascii=False)


def alternatives(schema: dict[str, Any], parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The schemas of which a value fits one; the schema itself if it has none."""
    parts = schema.get("anyOf", schema.get("oneOf"))
    if not isinstance(parts, list):
        return [schema]
    return [_resolved(part, parameters) for part in parts if isinstance(part, dict)]


def _kinds_of(parameters: Mapping[str, Any], name: str) -> set[str]:
    """Names of the JSON types that a parameter may have; none if its schema does not restrict them.
    Without a schema, a number may as well be text, but an object hardly."""
    schema = schema_of(parameters, name)
    return {"string", "array", "object"} if schema is None else _kinds(schema, parameters)


def _kinds(schema: Mapping[str, Any], root: Mapping[str, Any]) -> set[str]:
    match schema:
        case {"type": str(kind)}:
            return {kind}
        case {"type": list(kinds)}:
            return {kind for kind in kinds if isinstance(kind, str)}
        case {"enum": list(values)}:
            return {_KINDS[type(value)] for value in values}
        case {"const": value}:
            return {_KINDS[type(value)]}
        case {"anyOf": list(parts)} | {"oneOf": list(parts)}:
            schemas = [_resolved(part, root) for part in parts if isinstance(part, dict)]
            found = [_kinds(part, root) for part in schemas if "anyOf" not in part]
            return set().union(*found) if all(found) else set()
    return set()


def _resolved(schema: dict[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """The target of its reference within the tool's schema; itself if that is not found."""
    for _ in range(_MAX_REFERENCES):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        found: Any = root
        for step in reference.removeprefix("#/").split("/"):
            found = found.get(step) if isinstance(found, Mapping) else None
        if not isinstance(found, dict):
            break
        schema = found
    return schema


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")
