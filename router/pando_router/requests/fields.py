"""How fields are read that clients fill in all sorts of ways."""

from collections.abc import Callable
from typing import Any

from pando_fleet.placement.prefix import PrefixError
from pando_router.errors import bad_request

MAX_NUMBER = 2**31 - 1  # of counts and priorities: what is beyond is a mistake


def count(*values: Any) -> int | None:
    """The first that is a number of tokens or choices."""
    for value in values:
        if type(value) is int and 0 < value <= MAX_NUMBER:
            return value
    return None


def priority(value: Any) -> int | None:
    return value if type(value) is int and -MAX_NUMBER <= value <= MAX_NUMBER else None


def wanted(value: Any) -> bool:
    """Whether a field asks for something, be it 0 of it."""
    return value is not None and value is not False


def text(*values: Any) -> str | None:
    """The first that is one, and says something."""
    for value in values:
        if type(value) is str and value:
            return value
    return None


def deterministic(temperature: Any, seed: Any) -> bool:
    # A boolean equals a number, but nobody's temperature is False.
    return type(seed) is int or (temperature == 0 and type(temperature) in (int, float))


def canonical(param: str, encode: Callable[..., bytes], *args: Any) -> bytes:
    """Raises ApiError 400 that names `param` where the prompt has no canonical bytes."""
    try:
        return encode(*args)
    except PrefixError as error:
        raise bad_request(str(error), param) from error


def is_many(prompt: Any) -> bool:
    """Whether it is a list of texts or of token ids, not one of them."""
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], (str, list))
