"""Parameters of tool calls that are written as plain text, and what their schemas make of them.

A parameter that is a string stands there as it is, without quotes and escapes; everything else as
JSON, or, as some chat templates show it to models, as Python writes booleans and None.
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
    JSON = auto()  # JSON, or where it is none the text itself
    EITHER = auto()  # as JSON where that is of a kind that the schema names, else the text itself


def schema_of(parameters: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """A parameter's own schema; None where the tool's does not know the parameter."""
    properties = parameters.get("properties")
    schema = properties.get(name) if isinstance(properties, dict) else None
    return _resolved(schema, parameters) if isinstance(schema, dict) else None


def reading(parameters: Mapping[str, Any], name: str) -> Reading:
    """How a parameter of a tool is read."""
    kinds = _kinds_of(parameters, name)
    if kinds == {"string"}:
        return Reading.STRING
    return Reading.JSON if kinds and "string" not in kinds else Reading.EITHER


def as_json(text: str, parameters: Mapping[str, Any], name: str) -> str:
    """A whole value, not read as a STRING, as JSON text."""
    bare = text.strip()
    bare = _PYTHON.get(bare, bare)
    try:
        value = json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    kinds, kind = _kinds_of(parameters, name), _KINDS[type(value)]
    fits = not kinds or kind in kinds or (kind == "integer" and "number" in kinds)
    return bare if fits or "string" not in kinds else json.dumps(text, ensure_ascii=False)


def _kinds_of(parameters: Mapping[str, Any], name: str) -> set[str]:
    """Names of JSON's types that a parameter may have; none where its schema does not say. Of one
    without a schema a number is as likely to be text, an object is not."""
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
    """What it refers to within the tool's schema; itself where that is not found."""
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
    raise ValueError(f"{constant} is not JSON")
