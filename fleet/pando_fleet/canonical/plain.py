"""Prompts without roles: texts, token ids, and pairs of texts."""

import struct

from pando_fleet.canonical.images import add_image
from pando_fleet.canonical.marks import PAIRED, TOKEN_IDS, PrefixError, json_bytes, json_type
from pando_fleet.images.in_prefix import PrefixImage


def completion_bytes(prompt: object) -> bytes:
    """Canonical bytes of a completion prompt: its text, or its token ids as little-endian uint32.

    Raises PrefixError if the prompt is neither a string nor a list of ids below 2**32,
    UnicodeEncodeError for a text with half a surrogate pair.
    """
    if isinstance(prompt, str):
        return prompt.encode()
    if not isinstance(prompt, list):
        raise PrefixError(
            f"prompt must be a string or a list of token ids, not {json_type(prompt)}"
        )
    try:
        return TOKEN_IDS + struct.pack(f"<{len(prompt)}I", *prompt)
    except struct.error:
        raise PrefixError("prompt must hold only token ids, integers from 0 to 2**32 - 1") from None


def seen_bytes(urls: object, images: list[PrefixImage]) -> bytes:
    """Canonical bytes of the images that a prompt has beside it; they come before its own.

    Args:
        urls: one, or a list of them; what is no URL counts as it is
        images: gets what is known of them
    """
    out: list[bytes] = []
    for url in urls if isinstance(urls, list) else [urls]:
        add_image(out, images, {"type": "image_url", "image_url": url})
    return b"".join(out)


def pair_bytes(first: object, second: object) -> bytes:
    """Canonical bytes of two texts that are read together, such as a query and a document.

    Anything but a text is encoded as JSON, because rerankers' documents may be objects.
    """
    return _any_bytes(first) + PAIRED + _any_bytes(second)


def _any_bytes(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else json_bytes(value)
