"""Turns pydantic's findings about a request into one error that a client can act on."""

from typing import Any

from fastapi.exceptions import RequestValidationError

from pando_worker.server.errors import ApiError, bad_request


def validation_error(error: RequestValidationError) -> ApiError:
    """The first finding: its place, the problem, and the value."""
    errors = error.errors()
    same = [found for found in errors if found["loc"][:2] == errors[0]["loc"][:2]]
    found = max(same, key=lambda found: len(found["loc"]))  # the branch of a union that fits best
    path = [part for part in found["loc"] if part != "body"]
    if found["type"] == "json_invalid":
        return bad_request(f"the request body is not valid JSON: {found['ctx']['error']}")
    if not path:
        return bad_request(
            "the request body must be a JSON object, sent with content-type: application/json"
        )
    param = _param(path)
    if found["type"] == "missing":
        return bad_request(f"{param} is required", param)
    message = found["msg"][0].lower() + found["msg"][1:]
    return bad_request(f"{param}{_value(found['input'])}: {message}", param)


def _param(path: list[int | str]) -> str:
    """A path like messages[0].role, without branches of a union, such as `list[...]`."""
    param = ""
    for part in path:
        if isinstance(part, int):
            param += f"[{part}]"
        elif part.isidentifier() and part not in _TYPE_NAMES:
            param += f".{part}" if param else part
    return param


_TYPE_NAMES = frozenset(
    # Branches of unions.
    ["str", "int", "float", "bool", "list", "dict", "TextPart", "ImagePart", "VideoPart"]
)


def _value(value: Any) -> str:
    """Shows numbers and words; a prompt or a structure is not repeated to the client."""
    if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 40):
        return f" is {value!r}"[:60]
    return ""
