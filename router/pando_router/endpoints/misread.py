"""Turns msgspec's words about a body into the router's: the field, what it must be, what it is."""

import re

from pando_router.errors import ApiError, bad_request

_MISSING = re.compile(r"missing required field `(\w+)`")
_EXPECTED = re.compile(r"Expected `(.+?)`(?:, got `(\w+)`)?(?: (>=|<=|>|<) (\S+))?(?: - at|$)")
_PLACE = re.compile(r" - at `\$\.?(.*)`")
_NOUNS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_ARE = {**_NOUNS, "int": "a number", "bool": "a boolean"}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}


def misread(message: str) -> ApiError:
    """400 with the place as `param`, for the message of a msgspec.ValidationError."""
    place = found[1] if (found := _PLACE.search(message)) else ""
    if missing := _MISSING.search(message):
        param = f"{place}.{missing[1]}" if place else missing[1]
        return bad_request(f"{param} is required", param)
    problem = message.partition(" - at ")[0]
    if expected := _EXPECTED.search(message):
        kinds, given, sign, bound = expected.groups()
        wanted = " or ".join(_NOUNS.get(kind, kind) for kind in kinds.split(" | "))
        problem = f"must be {wanted}"
        problem += f", {_BOUNDS[sign]} {bound}" if sign else ""
        problem += f", not {_ARE.get(given, given)}" if given else ""
    return bad_request(f"{place or 'the request body'} {problem}", place or None)
