"""Turns pydantic's findings about a request into one error that a client can act on: the field
first, then what it must be, then what it is.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from pando_worker.server.errors import ApiError, bad_request, shown

# What a value must be where its type is wrong, by the first part of pydantic's name of the error.
_NOUNS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "a string",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "finite": "a finite number",
}
_BOUNDS = {"ge": "at least", "le": "at most", "gt": "more than", "lt": "less than"}
_TYPE_NAMES = frozenset(
    # Branches of unions.
    ["str", "int", "float", "bool", "list", "dict", "TextPart", "ImagePart", "VideoPart"]
)


def validation_error(error: RequestValidationError, body: type[BaseModel] | None) -> ApiError:
    """The first finding: its place, the problem, and the value.

    Args:
        body: what the request was read as, if it is known
    """
    errors = error.errors()
    same = [found for found in errors if found["loc"][:2] == errors[0]["loc"][:2]]
    found = max(same, key=lambda found: len(found["loc"]))  # the branch of a union that fits best
    path = [part for part in found["loc"] if part != "body"]
    if found["type"] == "json_invalid":
        where = f" at character {path[0]}" if path else ""
        return bad_request(f"the request body is not valid JSON{where}: {found['ctx']['error']}")
    if not path:
        return bad_request(
            "the request body must be a JSON object, sent with content-type: application/json"
        )
    param = _param(path)
    if found["type"] == "missing":
        return bad_request(f"{param} is required", param)
    return bad_request(f"{param} {_problem(found, same, param, body)}", param)


def _problem(
    found: Mapping[str, Any],
    same: Sequence[Mapping[str, Any]],
    param: str,
    body: type[BaseModel] | None,
) -> str:
    context, value = found.get("ctx", {}), found["input"]
    if noun := _noun(found):
        others = [_noun(one) for one in same if _param([*one["loc"][1:]]) == param]
        nouns = dict.fromkeys([*filter(None, others), noun])
        return f"must be {' or '.join(nouns)}, not {shown(value)}"
    match found["type"]:
        case "greater_than_equal" | "less_than_equal" | "greater_than" | "less_than":
            return f"must be {_range(param, context, body)}, not {shown(value)}"
        case "literal_error":
            return f"must be {context['expected']}, not {shown(value)}"
        case "too_long" | "too_short":
            return f"must have {_count(context, 'item')}, not {context['actual_length']}"
        case "string_too_long" | "string_too_short":
            return f"must have {_count(context, 'character')}, not {len(value)}"
        case _:  # our own validators' words, or a rare one of pydantic's
            return str(found["msg"][0].lower() + found["msg"][1:])


def _count(context: Mapping[str, Any], unit: str) -> str:
    """The number of items or characters that a value may have, such as "at least 1 item"."""
    least: int | None = context.get("min_length")
    bound, number = ("at least", least) if least else ("at most", context["max_length"])
    return f"{bound} {number} {unit}{'' if number == 1 else 's'}"


def _noun(found: Mapping[str, Any]) -> str | None:
    """What the value must be, if its type is what is wrong."""
    first, _, rest = found["type"].partition("_")
    is_type = rest in ("type", "parsing", "from_float", "parsing_size", "number", "attributes_type")
    return _NOUNS.get(first) if is_type else None


def _range(param: str, context: Mapping[str, Any], body: type[BaseModel] | None) -> str:
    """Both bounds of a field of the body itself, else the one that was not kept."""
    limits = _limits(body).get(param, {}) if body else {}
    if {"minimum", "maximum"} <= limits.keys():
        return f"between {limits['minimum']:g} and {limits['maximum']:g}"
    both = [("exclusiveMinimum", "gt"), ("minimum", "ge"), ("exclusiveMaximum", "lt")]
    both.append(("maximum", "le"))
    words = [f"{_BOUNDS[name]} {_number(limits[key])}" for key, name in both if key in limits]
    if not words:
        words = [f"{_BOUNDS[key]} {_number(limit)}" for key, limit in context.items()]
    return " and ".join(words)


@cache
def _limits(body: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The JSON schema of each number among the fields."""
    found = {}
    for name, schema in body.model_json_schema()["properties"].items():
        for one in schema.get("anyOf", [schema]):
            if one.get("type") in ("number", "integer"):
                found[name] = one
    return found


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _param(path: Sequence[int | str]) -> str:
    """A path like messages[0].role, without branches of a union, such as `list[...]`."""
    param = ""
    for part in path:
        if isinstance(part, int):
            param += f"[{part}]"
        elif part.isidentifier() and part not in _TYPE_NAMES:
            param += f".{part}" if param else part
    return param
