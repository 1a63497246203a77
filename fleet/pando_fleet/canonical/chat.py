"""OpenAI's chats: tools first, then each message's role, reasoning, content and the rest."""

from pando_fleet.canonical.marks import (
    FIELDS,
    LEAD,
    MESSAGE,
    TEXT,
    PrefixError,
    json_bytes,
    json_type,
    without,
)
from pando_fleet.canonical.parts import add_content
from pando_fleet.images.in_prefix import PrefixImage

# Chat templates write a turn's reasoning before its content, and its tool calls after it, so a turn
# whose content continues extends its bytes.
_LEADING = ("reasoning", "reasoning_content")
_SILENT = frozenset(["role", "content", *_LEADING, "annotations", "cache_control"])


def chat_bytes(
    messages: object, tools: bytes = b"", images: list[PrefixImage] | None = None
) -> bytes:
    """Canonical bytes of a chat prompt.

    The bytes of a longer conversation extend those of its beginning; so do those of a conversation
    whose last text is continued. `images` gets what is known of the prompt's images.

    Raises PrefixError if `messages` is not a list of objects with a string role and a content that
    is a string, null or a list of parts; UnicodeEncodeError for a text with half a surrogate pair.
    """
    out = [tools]
    add_messages(out, messages, [] if images is None else images)
    return b"".join(out)


def add_messages(out: list[bytes], messages: object, images: list[PrefixImage]) -> None:
    if not isinstance(messages, list):
        raise PrefixError(f"messages must be a list, not {json_type(messages)}")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise PrefixError(f"messages[{index}] must be an object, not {json_type(message)}")
        add_message(out, message, images, "messages", index)


def add_message(
    out: list[bytes],
    message: dict[str, object],
    images: list[PrefixImage],
    name: str,
    index: int,
) -> None:
    """`name` is the list's name in errors. Fields besides role and content are rare."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise PrefixError(f"{name}[{index}].role must be a string, not {json_type(role)}")
    out += (MESSAGE, role.encode())
    rest = message if len(message) > 2 or "content" not in message else None
    if rest:
        for leading in _LEADING:
            if text := rest.get(leading):
                out += (LEAD, text.encode() if isinstance(text, str) else json_bytes(text))
    if isinstance(content, str):
        if content:
            out += (TEXT, content.encode())
    else:
        add_content(out, content, images, f"{name}[{index}].content")
    if rest and (said := without(rest, _SILENT)):
        out += (FIELDS, json_bytes(said))
