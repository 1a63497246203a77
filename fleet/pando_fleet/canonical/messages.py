"""Anthropic's messages: tools, the system prompt as a first message, then the turns."""

from pando_fleet.canonical.chat import add_messages
from pando_fleet.canonical.marks import MESSAGE
from pando_fleet.canonical.parts import add_content
from pando_fleet.images.in_prefix import PrefixImage


def messages_bytes(
    messages: object,
    system: object = None,
    tools: bytes = b"",
    images: list[PrefixImage] | None = None,
) -> bytes:
    """Canonical bytes of a body of /v1/messages. If all its content is text, they equal those of
    the same conversation as a chat. Cache marks (`cache_control`) are ignored everywhere.
    `images` gets what is known of the prompt's images.

    Raises PrefixError like chat_bytes, and if `system` is not a string, null or a list of blocks.
    """
    out = [tools]
    images = [] if images is None else images
    if system:
        out += (MESSAGE, b"system")
        add_content(out, system, images, "system")
    add_messages(out, messages, images)
    return b"".join(out)
