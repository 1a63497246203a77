"""Sizes from files' headers, as Pillow reads them."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pando_fleet.images.size import Size, image_size

FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "png": ("PNG", "RGB", {}),
    "png, a palette": ("PNG", "P", {}),
    "gif": ("GIF", "P", {}),
    "jpeg": ("JPEG", "RGB", {}),
    "jpeg, progressive": ("JPEG", "RGB", {"progressive": True}),
    "jpeg, grey": ("JPEG", "L", {}),
    "webp, lossy": ("WEBP", "RGB", {}),
    "webp, lossless": ("WEBP", "RGB", {"lossless": True}),
    "webp, with transparency": ("WEBP", "RGBA", {}),
    "webp, with a profile": ("WEBP", "RGB", {"icc_profile": b"x" * 100}),
}


def read(data: bytes) -> Size | None:
    return image_size(lambda start, end: data[start:end])


def file(kind: str, width: int, height: int) -> bytes:
    form, mode, options = FILES[kind]
    buffer = io.BytesIO()
    Image.new(mode, (width, height)).save(buffer, form, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (3, 1000), (4097, 17)])
def test_size_is_what_pillow_reads(kind: str, size: tuple[int, int]) -> None:
    data = file(kind, *size)
    assert read(data) == Image.open(io.BytesIO(data)).size == size


def test_a_jpegs_metadata_is_skipped_however_long_it_is() -> None:
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[0x010E] = "x" * 60_000
    profile = b"y" * 500_000  # in eight segments
    Image.new("RGB", (320, 200)).save(buffer, "JPEG", exif=exif, icc_profile=profile)
    data, seen = buffer.getvalue(), []

    def reading(start: int, end: int) -> bytes:
        seen.append(data[start:end])
        return data[start:end]

    assert image_size(reading) == (320, 200)
    assert sum(map(len, seen)) < 200


@given(st.sampled_from(sorted(FILES)), st.integers(0, 200), st.binary(max_size=4))
def test_a_damaged_file_has_a_size_or_none(kind: str, at: int, damage: bytes) -> None:
    data = file(kind, 64, 48)
    read(data[:at])
    found = read(data[:at] + damage + data[at + len(damage) :])
    assert found is None or (found.width > 0 and found.height > 0)


@given(st.binary(max_size=64))
def test_what_is_no_image_has_no_size(data: bytes) -> None:
    assert read(b"BM" + data) is None
    read(b"\xff\xd8" + data)  # ends
