"""Image files that no camera writes."""

import struct
import warnings
import zlib

from PIL import Image

from tests.worker.vision.photographs import encoded


def many_scans(count: int, side: int) -> bytes:
    """A JPEG file with `count` scans of a few bytes each."""
    data = encoded(Image.new("L", (side, side), 100), "JPEG", progressive=True)
    last, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    return data[:end] + data[last:end] * (count - data.count(b"\xff\xda")) + data[end:]


def many_segments(count: int) -> bytes:
    """A JPEG file with `count` segments of EXIF data, a byte each."""
    data = encoded(Image.new("L", (8, 8)), "JPEG")
    return data[:2] + b"\xff\xe1\x00\x09Exif\0\0a" * count + data[2:]


def odd_exif(tags: int) -> bytes:
    """A PNG file whose EXIF data ends before each of its tags' values."""
    values = b"".join(struct.pack("<HHII", tag, 1, 10**6, 8) for tag in range(tags))
    data = encoded(Image.new("RGB", (8, 8)), "PNG")
    end = data.rindex(b"IDAT") - 4
    return (
        data[:end]
        + chunk(b"eXIf", b"II*\0\x08\0\0\0" + struct.pack("<H", tags) + values)
        + data[end:]
    )


def chunk(kind: bytes, data: bytes) -> bytes:
    """Of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def warned_by(module: str) -> int:
    """Warnings that a call would show in this process."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.warn_explicit("odd", UserWarning, "file.py", 1, module)
    return len(shown)
