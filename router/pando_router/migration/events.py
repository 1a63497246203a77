"""Server-sent events as engines send them: each has one line of data, JSON or `[DONE]`."""

from typing import Any

import msgspec

from pando_router.migration.errors import RefusedError

Event = dict[str, Any]

DONE = "[DONE]"
DONE_EVENT = b"data: [DONE]\n\n"

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def events_of(data: bytes) -> list[Event | str]:
    """The events in `data`: their JSON, or DONE; comments and events without data are skipped.

    Raises RefusedError for data that is neither.
    """
    found: list[Event | str] = []
    for line in data.splitlines():
        name, _, value = line.partition(b":")
        if name != b"data":
            continue
        value = value.strip()
        if value == DONE.encode():
            found.append(DONE)
            continue
        try:
            found.append(_decode(value))
        except (msgspec.DecodeError, UnicodeError) as error:
            raise RefusedError("its stream has events that are not JSON objects") from error
    return found


def encoded(event: Event, *, named: bool = False) -> bytes:
    name = b"event: %s\n" % str(event.get("type")).encode() if named else b""
    return name + b"data: " + msgspec.json.encode(event) + b"\n\n"
