"""The words for a setting's wrong value: what it must be, in place of pydantic's sentences."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pando.usage import closest

# What a value must be where its type is wrong, by the first part of pydantic's name of the error.
_NOUNS = {
    "int": "an integer",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "a text",
    "path": "a path",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "model": "a mapping",
}
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def problem_of(detail: ErrorDetails, field: FieldInfo) -> str:
    """What is wrong, without the setting's name and its value: "it must be at most 65535"."""
    context: Mapping[str, Any] = detail.get("ctx", {})
    kind, _, rest = detail["type"].partition("_")
    match detail["type"]:
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            limits = context if len(detail["loc"]) > 1 else _limits(field)
            return f"it must be {_range(limits or context)}"
        case "literal_error" | "enum":
            expected = str(context["expected"])
            near = closest(str(detail["input"]), re.findall(r"'([^']*)'", expected))
            return f"it must be {expected}" + (f"; did you mean {near}?" if near else "")
        case "missing":
            return "it is required"
        case "extra_forbidden":
            return "there is no such setting"
        case "string_too_short":
            return "it must not be empty"
        case "string_pattern_mismatch":
            return f"it must match {context['pattern']}"
    if kind in _NOUNS and rest in ("type", "parsing", "from_float", "parsing_size", "number"):
        return f"it must be {_NOUNS[kind]}"
    message = " ".join(detail["msg"].removeprefix("Value error, ").split())
    return f"{message[0].lower()}{message[1:]}" if message[1:2].islower() else message


def _limits(field: FieldInfo) -> dict[str, float]:
    """The bounds that the setting's class declares."""
    return {
        name: getattr(mark, name)
        for mark in field.metadata
        for name in _BOUNDS
        if getattr(mark, name, None) is not None
    }


def _range(limits: Mapping[str, Any]) -> str:
    if {"ge", "le"} <= limits.keys():
        return f"between {_number(limits['ge'])} and {_number(limits['le'])}"
    return " and ".join(f"{_BOUNDS[name]} {_number(limit)}" for name, limit in limits.items())


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
