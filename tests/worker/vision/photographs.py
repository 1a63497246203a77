"""Photographs with free licences: those that scikit-image's wheel carries."""

import base64
import io
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from PIL import Image


def path(name: str) -> Path:
    """`astronaut.png`, `chelsea.png` (a cat), `coffee.png`, `rocket.jpg`, ..."""
    spec = find_spec("skimage")
    assert spec is not None and spec.submodule_search_locations, "scikit-image is installed"
    return Path(spec.submodule_search_locations[0]) / "data" / name


@cache
def photograph(name: str) -> Image.Image:
    return Image.open(path(name)).convert("RGB")


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """A file in Pillow's format `kind`."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
