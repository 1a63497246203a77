"""The borders between a prompt's parts, and JSON as bytes: shared by all kinds of bodies."""

import msgspec

# UTF-8 contains none of these.
TOOLS = b"\xff"
MESSAGE = b"\xfe"  # before a role, or the type of an item without a role
TEXT = b"\xfd"
OPAQUE = b"\xfc"  # before a digest
FIELDS = b"\xfb"  # before a message's other fields
TOKEN_IDS = b"\xfa"
LEAD = b"\xf9"  # before the fields that precede a message's content
PART = b"\xf8"  # before a part that is JSON
END = b"\xf7"  # after contents inside a part
EARLIER = b"\xf6"  # before the name of a response or conversation that the server stores
PAIRED = b"\xf5"  # before the second text of a pair

_encode = msgspec.json.Encoder(order="deterministic").encode


class PrefixError(ValueError):
    """The prompt's shape has no canonical bytes; the message names the place."""


def json_bytes(value: object) -> bytes:
    """Compact JSON with sorted keys."""
    return _encode(value)


def without(fields: dict[str, object], names: frozenset[str]) -> dict[str, object]:
    """The fields outside `names` that are not null, empty text, empty list or empty object."""
    return {
        name: value
        for name, value in fields.items()
        if name not in names and (value or isinstance(value, (int, float)))
    }


def json_type(value: object) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")
