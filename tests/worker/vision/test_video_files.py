"""Frames of video files, and what a file cannot make a worker do."""

import io
import struct

import av
import numpy as np
import pytest

from pando_worker.vision.errors import ImageError
from pando_worker.vision.video_files import VideoLimits, reading
from tests.worker.vision.films import film
from tests.worker.vision.photographs import path

LIMITS = VideoLimits(max_bytes=10**7, max_seconds=60, max_frames=100, max_pixels=100_000)


def read(data: bytes, wanted: list[int], limits: VideoLimits = LIMITS) -> list[np.ndarray]:
    with reading(data, limits, lambda: False) as video:
        return list(video.frames(wanted))


def all_of(data: bytes) -> list[np.ndarray]:
    with av.open(io.BytesIO(data), "r") as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize(
    ("form", "codec"),
    [
        ("mp4", "libx264"),
        ("mov", "libx264"),
        ("matroska", "libx264"),
        ("mp4", "mpeg4"),
        ("webm", "libvpx"),
        ("webm", "libvpx-vp9"),
    ],
)
def test_frames_count_and_rate_are_the_files(form: str, codec: str) -> None:
    data = film(form=form, codec=codec, frames=20, rate=25)
    whole = all_of(data)
    with reading(data, LIMITS, lambda: False) as video:
        assert (video.count, video.rate) == (20, 25.0)
        found = list(video.frames([0, 3, 3, 18, 19]))
    for index, frame in zip([0, 3, 3, 18, 19], found, strict=True):
        np.testing.assert_array_equal(frame, whole[index])


@pytest.mark.parametrize("codec", ["libx265", "libsvtav1"])
def test_newer_codecs_are_read_where_pyav_has_them(codec: str) -> None:
    if codec not in av.codecs_available:
        pytest.skip(f"PyAV has no {codec} to make one")
    data = film(codec=codec, frames=8)
    assert len(read(data, [0, 7])) == 2


def test_a_file_is_turned_as_it_says() -> None:
    data = film(frames=4)
    turned = bytearray(data)
    at = turned.index(b"tkhd") + 4 + 40  # behind version, times, ids, layer and volume
    matrix = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    turned[at : at + 36] = matrix
    (plain,), (found,) = read(data, [2]), read(bytes(turned), [2])
    np.testing.assert_array_equal(found, np.rot90(plain, -1))  # clockwise


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no video at all, but text", "is not a video in the format MP4, MOV, WebM or Matroska"),
        (b"", "is not a video"),
        (path("coffee.png").read_bytes(), "is not a video"),
        (b"#EXTM3U\n#EXTINF:1\nfile:///etc/passwd\n", "is not a video"),
        (film()[:40], "is a damaged video"),
        (film(frames=24)[: len(film(frames=24)) // 2], "damaged|missing|no two frames"),
        (film().replace(b"avc1", b"xxxx"), "names no codec that is known"),
        (film(codec="mpeg2video", form="matroska"), "has the codec mpeg2video, not MP4"),
        (film(frames=1), "has no two frames"),
        (film(size=(400, 300)), "400 x 300 = 120000 pixels; this worker accepts 100000"),
        (film(frames=130, rate=2), "has 65.0 s; this worker accepts 60 s"),
    ],
    ids=[
        "text",
        "empty",
        "image",
        "list",
        "head",
        "half",
        "unknown",
        "codec",
        "one",
        "pixels",
        "seconds",
    ],
)
def test_what_is_refused_says_why(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        read(data, [0, 1])


def test_more_frames_than_seconds_can_have_are_refused() -> None:
    """However short the file says they are: they would all be decoded."""
    limits = VideoLimits(max_bytes=10**7, max_seconds=0.1, max_frames=9, max_pixels=10**6)
    with pytest.raises(ImageError, match="has more than 24 frames"):
        read(film(frames=30, rate=1000), [0], limits)


def test_a_longer_time_in_the_header_is_not_believed() -> None:
    data = bytearray(film(frames=16, rate=8))
    for name, behind in ((b"mvhd", 16), (b"mdhd", 16)):
        at = data.index(name) + 4 + behind
        data[at : at + 4] = struct.pack(">I", 2**31)
    with reading(bytes(data), LIMITS, lambda: False) as video:
        assert video.count == 16
        assert video.rate == pytest.approx(8, rel=0.1)


def test_a_table_of_a_billion_frames_takes_no_memory() -> None:
    data = bytearray(film(frames=16))
    at = data.index(b"stsz") + 8  # behind version: the size of every sample, then how many
    data[at : at + 8] = struct.pack(">2I", 1, 2**27)
    with pytest.raises(ImageError):
        read(bytes(data), [0, 1])


def test_a_size_that_changes_inside_is_bounded() -> None:
    """The header says little, the stream much."""
    small, large = film(size=(64, 48), frames=4), film(size=(400, 300), frames=4)
    data = bytearray(large)
    width, height = struct.pack(">H", 64), struct.pack(">H", 48)
    at = data.index(b"avc1") + 4 + 24
    data[at : at + 4] = width + height
    assert small != data
    with pytest.raises(ImageError):
        read(bytes(data), [0, 1])


def test_a_cancelled_read_ends_between_frames() -> None:
    asked = 0

    def is_cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    with (
        pytest.raises(ImageError, match="was cancelled"),
        reading(film(frames=24), LIMITS, is_cancelled) as video,
    ):
        list(video.frames(range(24)))
    assert asked == 6
