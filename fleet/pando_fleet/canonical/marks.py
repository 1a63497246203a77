"""The borders between a prompt's parts, and JSON as bytes: what all kinds of bodies share."""

import msgspec

# UTF-8 contains none of these.
TOOLS = b"\xff"
MESSAGE = b"\xfe"  # before a role, or the type of an item that has none
TEXT = b"\xfd"
OPAQUE = b"\xfc"  # before a digest
FIELDS = b"\xfb"  # before what else a message says
TOKEN_IDS = b"\xfa"
LEAD = b"\xf9"  # before what a message says in front of its content
PART = b"\xf8"  # before a part that is JSON
END = b"\xf7"  # behind contents inside a part
EARLIER = b"\xf6"  # before the name of what the server knows of a conversation
PAIRED = b"\xf5"  # before the second text of a pair

_encode = msgspec.json.Encoder(order="deterministic").encode


class PrefixError(ValueError):
    """A prompt of a shape that has no canonical bytes; the message names the place."""


def json_bytes(value: object) -> bytes:
    """Compact, objects in the order of their keys."""
    return _encode(value)


def without(fields: dict[str, object], names: frozenset[str]) -> dict[str, object]:
    """What the fields say outside `names`: null, an empty text, list or object says nothing."""
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
