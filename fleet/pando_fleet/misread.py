"""What is wrong in JSON or YAML that was read as a msgspec type, in Pando's words in place of
msgspec's: the field, what it must be, what it is.
"""

import re
from dataclasses import dataclass

import msgspec

UNKNOWN = "is an unknown field"

_MISSING = re.compile(r"missing required field `(.+?)`")
_UNKNOWN = re.compile(r"contains unknown field `(.+?)`")
_EXPECTED = re.compile(r"Expected `(.+?)`(?:, got `(\w+)`)?(?: (>=|<=|>|<) (\S+))?(?: - at|$)")
_LENGTH = re.compile(r"Expected `(?:str|array|object)` of length (>=|<=|==) (\d+)")
_CHOICE = re.compile(r"Invalid (?:enum )?value ('.*'|\S+)")
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
_OTHERS = {
    "Invalid RFC3339 encoded datetime": "must be a time such as 2030-01-31T00:00:00Z",
    "Number out of range": "must be a smaller number",
    "Integer value out of range": "must be a smaller number",
}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than", "==": "exactly"}


@dataclass(frozen=True, slots=True)
class Misread:
    """
    Attributes:
        place: such as keys[0].sha256; empty if it is the whole
        problem: what follows the place in a sentence
    """

    place: str
    problem: str

    def about(self, whole: str) -> str:
        """A sentence without a full stop; `whole` names what was read."""
        return f"{self.place or whole} {self.problem}"


def misread(error: msgspec.DecodeError | msgspec.ValidationError) -> Misread:
    """What msgspec found."""
    message = str(error)
    if not isinstance(error, msgspec.ValidationError):
        problem = message.removeprefix("JSON is malformed: ")
        ends_early = problem == "Input data was truncated"
        return Misread("", f"is not JSON: {'it ends too early' if ends_early else problem}")
    place = found[1] if (found := _PLACE.search(message)) else ""
    if missing := _MISSING.search(message):
        return Misread(f"{place}.{missing[1]}" if place else missing[1], "is required")
    if unknown := _UNKNOWN.search(message):
        return Misread(f"{place}.{unknown[1]}" if place else unknown[1], UNKNOWN)
    return Misread(place, _problem(message))


def _problem(message: str) -> str:
    if length := _LENGTH.search(message):
        return f"must have a length of {_BOUNDS[length[1]]} {length[2]}"
    if expected := _EXPECTED.search(message):
        kinds, given, sign, bound = expected.groups()
        wanted = " or ".join(_NOUNS.get(kind, kind) for kind in kinds.split(" | "))
        bounds = f", {_BOUNDS[sign]} {bound}" if sign else ""
        return f"must be {wanted}{bounds}" + (f", not {_ARE.get(given, given)}" if given else "")
    if choice := _CHOICE.search(message):
        return f"must not be {choice[1]}"
    what = message.partition(" - at ")[0]
    return _OTHERS.get(what, f"is wrong: {what[:1].lower()}{what[1:]}")
