"""Lenient readers for fields that clients fill in many ways."""

from collections.abc import Callable
from typing import Any

from pando_fleet.placement.prefix import PrefixError
from pando_router.errors import bad_request

MAX_NUMBER = 2**31 - 1  # for counts and priorities; anything larger is a mistake
MAX_NAME_LENGTH = 1024  # of a session or end user; longer texts are no names


def count(*values: Any) -> int | None:
    """The first value that is a valid number of tokens or choices."""
    for value in values:
        if type(value) is int and 0 < value <= MAX_NUMBER:
            return value
    return None


def priority(value: Any) -> int | None:
    return value if type(value) is int and -MAX_NUMBER <= value <= MAX_NUMBER else None


def wanted(value: Any) -> bool:
    """Whether a field asks for its feature; 0 does."""
    return value is not None and value is not False


def text(*values: Any) -> str | None:
    """The first value that is a non-empty string."""
    for value in values:
        if type(value) is str and value:
            return value
    return None


def name(*values: Any) -> str | None:
    """The first value that may name a session or end user."""
    for value in values:
        if type(value) is str and 0 < len(value) <= MAX_NAME_LENGTH:
            return value
    return None


def deterministic(temperature: Any, seed: Any) -> bool:
    # False equals 0 but is no temperature.
    return type(seed) is int or (temperature == 0 and type(temperature) in (int, float))


def canonical(param: str, encode: Callable[..., bytes], *args: Any) -> bytes:
    """The prompt's canonical bytes. Raises ApiError 400 that names `param` if it has none."""
    try:
        return encode(*args)
    except PrefixError as error:
        place, _, problem = str(error).partition(" ")
        place = param + place.removeprefix("prompt") if place.startswith("prompt") else place
        raise bad_request(
            f"{place} {problem}", place if place.startswith(param) else param
        ) from error


def is_many(prompt: Any) -> bool:
    """Whether `prompt` is a list of prompts, not a single one."""
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], (str, list))
