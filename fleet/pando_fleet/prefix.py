"""Prompts as chains of chunk keys: what the prefix tree stores instead of text.

A prompt becomes canonical bytes (`chat_bytes`, `completion_bytes`), and `chunk_keys` names each
full chunk of them by a 64-bit hash of everything up to its end. Two prompts of one seed share keys
exactly as far as they share bytes, so a chain of keys is a path in a radix tree, and no text leaves
the router.
"""

import json
import struct

from xxhash import xxh3_64_digest, xxh3_64_intdigest, xxh3_128_hexdigest

CHUNK_BYTES = 256
"""Bytes of prompt under one key, about 64 tokens of English."""

KEY_BYTES = 8
"""Bytes of one packed key."""

MAX_CHUNKS = 8192
"""Keys of one prompt at most (2 MiB of prompt): bounds what one placement costs Redis."""

# Bytes that UTF-8 never contains, so no content can imitate a border and nothing needs escaping.
# They stand before what they introduce, so what is appended to a conversation extends its bytes.
_TOOLS = b"\xff"
_MESSAGE = b"\xfe"
_TEXT = b"\xfd"
_OPAQUE = b"\xfc"
_FIELDS = b"\xfb"
_TOKEN_IDS = b"\xfa"


class PrefixError(ValueError):
    """A prompt of a shape that has no canonical bytes; the message names the place."""


def chat_bytes(messages: object, tools: object = None) -> bytes:
    """Canonical bytes of a chat prompt: tools first, then each message's role, content and rest.

    Takes parsed, unchecked JSON. A conversation with more messages is a byte-extension of the
    shorter one, and so is one whose last text goes on. A string content equals one text part;
    images, audio and other parts enter as a digest of their JSON; null fields are ignored.

    Raises PrefixError where `messages` is not a list of objects with a string role and a content
    that is a string, null or a list of parts, or where `tools` is not a list.
    """
    if not isinstance(messages, list):
        raise PrefixError(f"messages must be a list, not {_json_type(messages)}")
    out: list[bytes] = []
    if tools is not None:
        if not isinstance(tools, list):
            raise PrefixError(f"tools must be a list, not {_json_type(tools)}")
        if tools:
            out += (_TOOLS, _json(tools))
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise PrefixError(f"messages[{index}] must be an object, not {_json_type(message)}")
        role = message.get("role")
        if not isinstance(role, str):
            raise PrefixError(f"messages[{index}].role must be a string, not {_json_type(role)}")
        out += (_MESSAGE, _utf8(role))
        content = message.get("content")
        if isinstance(content, str):
            out += (_TEXT, _utf8(content))
        elif isinstance(content, list):
            for number, part in enumerate(content):
                out += _part_bytes(part, f"messages[{index}].content[{number}]")
        elif content is not None:
            raise PrefixError(
                f"messages[{index}].content must be a string, null or a list of parts, "
                f"not {_json_type(content)}"
            )
        if len(message) > 2:
            rest = {
                name: value
                for name, value in message.items()
                if value is not None and name not in ("role", "content")
            }
            if rest:
                out += (_FIELDS, _json(rest))
    return b"".join(out)


def completion_bytes(prompt: object) -> bytes:
    """Canonical bytes of a completion prompt: its text, or its token ids as little-endian uint32.

    Raises PrefixError where the prompt is neither a string nor a list of ids below 2**32.
    """
    if isinstance(prompt, str):
        return _utf8(prompt)
    if not isinstance(prompt, list):
        raise PrefixError(
            f"prompt must be a string or a list of token ids, not {_json_type(prompt)}"
        )
    try:
        return _TOKEN_IDS + struct.pack(f"<{len(prompt)}I", *prompt)
    except struct.error:
        raise PrefixError("prompt must hold only token ids, integers from 0 to 2**32 - 1") from None


def seed(model: str, adapter: str = "", salt: str = "") -> int:
    """The start of every chain of one name space: 64 bits of model, adapter and tenant salt."""
    return xxh3_64_intdigest(b"\xff".join((_utf8(model), _utf8(adapter), _utf8(salt))))


def chunk_keys(data: bytes, seed: int, chunk_bytes: int = CHUNK_BYTES) -> bytes:
    """Packed big-endian 8-byte keys of every full chunk: h_i = xxh3(h_{i-1} || chunk_i).

    The root is first. A last chunk that is not full has no key, nor has what lies behind
    MAX_CHUNKS.
    """
    chunks = min(len(data) // chunk_bytes, MAX_CHUNKS)
    key = seed.to_bytes(KEY_BYTES, "big")
    keys = []
    for start in range(0, chunks * chunk_bytes, chunk_bytes):
        key = xxh3_64_digest(key + data[start : start + chunk_bytes])
        keys.append(key)
    return b"".join(keys)


def _part_bytes(part: object, place: str) -> tuple[bytes, bytes]:
    if not isinstance(part, dict):
        raise PrefixError(f"{place} must be an object, not {_json_type(part)}")
    if part.get("type") != "text":
        return _OPAQUE, xxh3_128_hexdigest(_json(part)).encode()
    text = part.get("text")
    if not isinstance(text, str):
        raise PrefixError(f"{place}.text must be a string, not {_json_type(text)}")
    return _TEXT, _utf8(text)


def _utf8(text: str) -> bytes:
    # JSON can spell lone surrogates; they must not fail here, and the engine judges them.
    return text.encode("utf-8", "surrogatepass")


def _json(value: object) -> bytes:
    return _utf8(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")))


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")
