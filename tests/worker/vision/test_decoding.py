"""Bytes to images: what is accepted, turned, refused."""

import io

import numpy as np
import pytest
from PIL import Image

from pando_worker.vision.decoding import data_of, decode
from pando_worker.vision.errors import ImageError
from tests.worker.vision.photographs import data_url, encoded, photograph

PLENTY = 10**8
ORIENTATION = 0x0112  # EXIF's tag


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_photograph_is_decoded_as_pillow_does(kind: str) -> None:
    data = encoded(photograph("chelsea.png"), kind)
    expected = Image.open(io.BytesIO(data)).convert("RGB")
    assert decode(data, PLENTY).tobytes() == expected.tobytes()
    assert data_of(data_url(data)) == data


def test_line_breaks_in_base64_do_not_matter() -> None:
    data = encoded(photograph("chelsea.png"), "JPEG")
    url = data_url(data)
    head, text = url.split(",")
    broken = "\n".join(text[start : start + 76] for start in range(0, len(text), 76))
    assert data_of(f"{head},{broken}") == data


def test_a_photograph_taken_sideways_stands_upright() -> None:
    upright = photograph("coffee.png")
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # to be turned clockwise for display
    data = encoded(upright.transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif)
    assert decode(data, PLENTY).tobytes() == upright.tobytes()


def test_the_first_frame_of_an_animation_counts() -> None:
    first, second = photograph("chelsea.png"), photograph("coffee.png").resize((451, 300))
    data = encoded(first, "GIF", save_all=True, append_images=[second])
    still = decode(encoded(first, "GIF"), PLENTY)
    assert np.abs(np.asarray(decode(data, PLENTY), int) - np.asarray(still, int)).mean() < 8


def test_size_is_refused_by_the_header_alone() -> None:
    """A bomb of 400 million pixels in 400 KB, whose decoding would take 1.2 GB."""
    bomb = encoded(Image.new("1", (20_000, 20_000)), "PNG")
    assert len(bomb) < 500_000
    with pytest.raises(ImageError, match=r"has 20000 x 20000 = 400000000 pixels; .* 50000000"):
        decode(bomb, 50_000_000)


@pytest.mark.parametrize("size", [(1, 201), (4020, 20)])
def test_a_line_is_refused(size: tuple[int, int]) -> None:
    """LLaVA 1.5's processor would make 3 GB of 1 x 4000 pixels."""
    with pytest.raises(ImageError, match=f"has {size[0]} x {size[1]} pixels: its longer side"):
        decode(encoded(Image.new("RGB", size), "PNG"), PLENTY)
    decode(encoded(Image.new("RGB", (1, 200)), "PNG"), PLENTY)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not an image in the format PNG, JPEG, WEBP or GIF"),
        (b"GIF89a", "is not an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is not an image"),
        (encoded(Image.new("RGB", (4, 4)), "BMP"), "is not an image"),
        (encoded(Image.new("RGB", (4, 4)), "TIFF"), "is not an image"),
    ],
    ids=["empty", "header", "SVG", "BMP", "TIFF"],
)
def test_what_is_no_image_of_these_formats_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        decode(data, PLENTY)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_cut_off_file_is_refused(kind: str) -> None:
    data = encoded(photograph("chelsea.png"), kind)
    with pytest.raises(ImageError, match=r"is a damaged|is not an image"):
        decode(data[: len(data) // 2], PLENTY)


def test_every_spelling_of_base64_that_routers_take_for_equal_is_read() -> None:
    data = encoded(photograph("chelsea.png"), "JPEG")
    url = data_url(data)
    spelled = [
        url.rstrip("="),
        url.replace("data:image/png;base64", "DATA:IMAGE/PNG;BASE64"),
        url.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
        url[:30] + url[30:].replace("+", "-").replace("/", "_"),
    ]
    assert [data_of(one) == data for one in spelled] == [True] * 4


@pytest.mark.parametrize(
    "url", ["data:", "data:image/png,abc", "data:image/png;base64,a", "data:image/png;base64,%%%"]
)
def test_a_data_url_without_base64_is_refused(url: str) -> None:
    with pytest.raises(ImageError, match="base64"):
        data_of(url)
