"""Bytes to an RGB image, with bounds on its size, by Pillow."""

import io
import re

from PIL import Image, ImageOps

from pando_fleet.images.data_url import base64_of, decoded
from pando_worker.vision.errors import ImageError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")  # as Pillow names them

# What a decoder goes through for each, over all pixels or in Python: cameras and programs write a
# few tens at most.
MAX_JPEG_SCANS = 100
MAX_JPEG_SEGMENTS = 5000

_JPEG_MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")  # but those within a scan's data
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_WITHOUT_LENGTH = frozenset((0x01, 0xD8))

# The longer side by the other. Processors that scale the shorter side to a fixed length would make
# gigabytes of a line. Qwen-VL's has the same bound.
MAX_SHAPE = 200

Image.MAX_IMAGE_PIXELS = None  # `decode` has a bound of its own, which it checks for every image


def data_of(url: str) -> bytes:
    """The bytes of a `data:` URL, in any spelling of base64.

    Raises:
        ImageError: it is not in base64.
    """
    try:
        text = base64_of(url)
        if text is None:
            raise ImageError("must be data:image/png;base64,... : other data: URLs are not read")
        return decoded(text)
    except ValueError as error:  # also binascii.Error and UnicodeEncodeError
        raise ImageError(f"is not valid base64: {error}") from error


def decode(data: bytes, max_pixels: int) -> Image.Image:
    """The image as people see it: turned as its EXIF data says, of a GIF the first frame.

    The size comes from the file's header, so an image beyond the bound takes no memory.

    Raises:
        ImageError: not an image in one of `FORMATS`, damaged, of more than `max_pixels` pixels or
            longer than `MAX_SHAPE`, or a JPEG file with far more scans or segments than any camera
            or program writes.
    """
    if data.startswith(b"\xff\xd8"):
        _check_jpeg(data)
    accepted = ", ".join(FORMATS[:-1]) + f" or {FORMATS[-1]}"
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception as error:  # Pillow's parsers raise nearly everything for damaged files
        raise ImageError(f"is not an image in the format {accepted}") from error
    width, height = image.size
    if width * height > max_pixels:
        raise ImageError(
            f"has {width} x {height} = {width * height} pixels; this worker accepts {max_pixels}"
        )
    if max(width, height) > MAX_SHAPE * min(width, height):
        raise ImageError(
            f"has {width} x {height} pixels: its longer side may be {MAX_SHAPE} times the other"
        )
    try:
        return ImageOps.exif_transpose(image).convert("RGB")
    except MemoryError:
        raise
    except Exception as error:
        raise ImageError(f"is a damaged {image.format} image: {error}") from error


def _check_jpeg(data: bytes) -> None:
    """A few bytes are a scan, for which all pixels are visited once more: 20 MiB of such would take
    hours. Raises ImageError."""
    segments = scans = place = 0
    while marker := _JPEG_MARKER.search(data, place):
        kind, place = marker[1][0], marker.end()
        if kind == _END_OF_IMAGE:
            return
        if kind not in _WITHOUT_LENGTH:
            place += int.from_bytes(data[place : place + 2], "big")
        segments += 1
        scans += kind == _START_OF_SCAN
        if scans > MAX_JPEG_SCANS:
            raise ImageError(f"is a JPEG image with more than {MAX_JPEG_SCANS} scans")
        if segments > MAX_JPEG_SEGMENTS:
            raise ImageError(f"is a JPEG image with more than {MAX_JPEG_SEGMENTS} segments")
