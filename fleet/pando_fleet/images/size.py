"""Width and height from the header of a PNG, JPEG, WebP or GIF file, without decoding it.

Only the few bytes that say the size are read. In a JPEG file these stand behind any number of
segments (EXIF, thumbnails, colour profiles), which are skipped without reading them.

Sources: PNG 11.2.1 (W3C), GIF89a 18, WebP's container and VP8 (RFC 9649, RFC 6386 9.1), JPEG B.1
and B.2 (ITU T.81).
"""

from collections.abc import Callable
from typing import NamedTuple

MAX_SEGMENTS = 256
"""A JPEG file with more of them before its size has none."""

_HEAD_BYTES = 30
# Frames of all kinds, without DHT, JPG and DAC, whose numbers lie between them.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Size(NamedTuple):
    width: int
    height: int


Read = Callable[[int, int], bytes]
"""The bytes of a file from a place to another; fewer where the file ends."""


def image_size(read: Read) -> Size | None:
    """In pixels, as stored: an EXIF rotation is not applied. None if it is not to be found."""
    head = read(0, _HEAD_BYTES)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        size = Size(_big(head[16:20]), _big(head[20:24]))
    elif head.startswith((b"GIF87a", b"GIF89a")):
        size = Size(_little(head[6:8]), _little(head[8:10]))
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        size = _webp(head)
    elif head.startswith(b"\xff\xd8"):
        size = _jpeg(read)
    else:
        return None
    return size if size.width and size.height else None


def _webp(head: bytes) -> Size:
    match head[12:16]:
        case b"VP8X":
            return Size(1 + _little(head[24:27]), 1 + _little(head[27:30]))
        case b"VP8L" if head[20:21] == b"\x2f":
            bits = _little(head[21:25])
            return Size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        case b"VP8 " if head[23:26] == b"\x9d\x01\x2a":
            return Size(_little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF)
    return Size(0, 0)


def _jpeg(read: Read) -> Size:
    place = 2
    for _ in range(MAX_SEGMENTS):
        segment = read(place, place + 9)
        if len(segment) < 9 or segment[0] != 0xFF:
            break
        marker = segment[1]
        if marker == 0xFF:  # filling
            place += 1
        elif marker in _FRAMES:
            return Size(_big(segment[7:9]), _big(segment[5:7]))
        else:
            place += 2 + max(2, _big(segment[2:4]))
    return Size(0, 0)


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
