"""Tools, which clients send with every turn of a conversation and are often most of its bytes."""

from functools import lru_cache

import msgspec

from pando_fleet.misread import misread
from pando_fleet.placement.prefix import tools_bytes
from pando_router.errors import bad_request
from pando_router.requests.fields import canonical

# The cache's 256 entries take at most 32 MiB, keys and values together.
_REMEMBERED_BYTES = 64 * 1024
NO_TOOLS = msgspec.Raw()

_decode = msgspec.json.decode


def read_tools(*raws: msgspec.Raw) -> bytes:
    """Canonical bytes of a body's tools, from the first field that has any.

    Raises ApiError 400 that names `tools`.
    """
    for raw in raws:
        if raw:
            spelled = bytes(raw)
            is_short = len(spelled) <= _REMEMBERED_BYTES
            if tools := _remembered(spelled) if is_short else _canonical(spelled):
                return tools
    return b""


def _canonical(spelled: bytes) -> bytes:
    try:
        tools = _decode(spelled)
    except msgspec.ValidationError as error:  # a number out of range
        raise bad_request(f"tools: {misread(error).about('this list')}", "tools") from error
    return canonical("tools", tools_bytes, tools)


_remembered = lru_cache(maxsize=256)(_canonical)
