"""Bytes to an RGB image, with bounds on its size, by Pillow."""

import io

from PIL import Image, ImageOps

from pando_fleet.images.data_url import base64_of, decoded
from pando_worker.vision.errors import ImageError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")  # as Pillow names them

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
        ImageError: not an image in one of `FORMATS`, damaged, or of more than `max_pixels` pixels.
    """
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
    try:
        return ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:
        raise ImageError(f"is a damaged {image.format} image: {error}") from error
