"""The elements of messages in every API: contents, their parts, and tools."""

from xxhash import xxh3_128_hexdigest

from pando_fleet.canonical.images import IMAGES, add_image
from pando_fleet.canonical.marks import (
    END,
    OPAQUE,
    PART,
    TEXT,
    TOOLS,
    PrefixError,
    json_bytes,
    json_type,
    without,
)
from pando_fleet.images.in_prefix import PrefixImage

_TEXTS = frozenset(["text", "input_text", "output_text", "summary_text", "reasoning_text"])
# Parts that consist of text, which are encoded as JSON. All others but images and videos
# (audio, files) are encoded as a digest of their JSON, whatever their size.
_WORDS = frozenset(["refusal", "thinking", "redacted_thinking", "tool_use", "server_tool_use"])
_RESULT = "tool_result"  # Anthropic's, which has contents of its own

_CACHE_MARK = frozenset(["cache_control"])  # moves to the end as a conversation grows
_AROUND_RESULT = frozenset(["cache_control", "content"])


def tools_bytes(tools: object) -> bytes:
    """Canonical bytes of the tools that a prompt may call: equal for equal JSON in any key order.

    Raises PrefixError if `tools` is neither null nor a list.
    """
    if tools is None:
        return b""
    if not isinstance(tools, list):
        raise PrefixError(f"tools must be a list, not {json_type(tools)}")
    if not tools:
        return b""
    bare = [without(tool, _CACHE_MARK) if isinstance(tool, dict) else tool for tool in tools]
    return TOOLS + json_bytes(bare)


def add_content(out: list[bytes], content: object, images: list[PrefixImage], place: str) -> None:
    """Encodes a text like a list of one text part, and an empty text like no part.

    Raises PrefixError if `content` is not a string, null or a list of parts.
    """
    if isinstance(content, str):
        if content:
            out += (TEXT, content.encode())
    elif isinstance(content, list):
        for number, part in enumerate(content):
            _add_part(out, part, images, f"{place}[{number}]")
    elif content is not None:
        raise PrefixError(
            f"{place} must be a string, null or a list of parts, not {json_type(content)}"
        )


def _add_part(out: list[bytes], part: object, images: list[PrefixImage], place: str) -> None:
    if not isinstance(part, dict):
        raise PrefixError(f"{place} must be an object, not {json_type(part)}")
    kind = part.get("type")
    if not isinstance(kind, str):
        raise PrefixError(f"{place}.type must be a string, not {json_type(kind)}")
    if kind in _TEXTS:
        text = part.get("text")
        if not isinstance(text, str):
            raise PrefixError(f"{place}.text must be a string, not {json_type(text)}")
        if text:
            out += (TEXT, text.encode())
    elif kind in IMAGES:
        add_image(out, images, part)
    elif kind in _WORDS:
        out += (PART, json_bytes(without(part, _CACHE_MARK)))
    elif kind == _RESULT:
        out += (PART, json_bytes(without(part, _AROUND_RESULT)))
        add_content(out, part.get("content"), images, f"{place}.content")
        out.append(END)
    else:
        digest = xxh3_128_hexdigest(json_bytes(without(part, _CACHE_MARK)))
        out += (OPAQUE, digest.encode())
