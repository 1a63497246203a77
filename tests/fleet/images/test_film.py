"""What a video's header says, of files by FFmpeg, and what hostile files cost."""

import struct
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_fleet.canonical import chat_bytes
from pando_fleet.images.film import MAX_BOXES, UNKNOWN_FILM, Film, film_of
from pando_fleet.images.film_rule import MAX_TOKENS, FilmRule
from pando_fleet.images.in_prefix import PrefixImage, counted
from pando_fleet.images.rule import ImageRule
from pando_fleet.images.size import Size
from tests.examples import examples
from tests.worker.vision.films import film
from tests.worker.vision.photographs import data_url

FORMS = [
    ("mp4", "libx264", {}),
    ("mov", "libx264", {}),
    ("mp4", "libx264", {"movflags": "faststart"}),
    ("mp4", "mpeg4", {}),
    ("matroska", "libx264", {}),
    ("webm", "libvpx", {}),
]


def written(
    path: Path, form: str, codec: str, options: dict[str, str], sound: bool, count: int = 40
) -> bytes:
    """Grey frames of 96 x 64 pixels, 8 a second; with sound before the video."""
    with av.open(path, "w", format=form, options=options) as container:
        audio: Any = None
        if sound:
            audio = container.add_stream("opus" if form == "webm" else "aac", rate=48000)
        stream: Any = container.add_stream(codec, rate=Fraction(8))
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for number in range(40):
            picture = np.full((64, 96, 3), number * 5 % 256, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        if audio is not None:
            quiet = av.AudioFrame.from_ndarray(np.zeros((1, 960), np.float32), "fltp", "mono")
            quiet.sample_rate = 48000
            container.mux(audio.encode(quiet))
        container.mux(stream.encode())
    return path.read_bytes()


def found(data: bytes) -> Film | None:
    return film_of(lambda start, end: data[start:end])


@pytest.mark.parametrize("sound", [False, True], ids=["silent", "sound"])
@pytest.mark.parametrize(("form", "codec", "options"), FORMS)
def test_size_length_and_frames_are_those_of_the_file(
    tmp_path: Path, form: str, codec: str, options: dict[str, str], sound: bool
) -> None:
    film = found(written(tmp_path / "film", form, codec, options, sound))
    assert film is not None
    assert film.size == Size(96, 64)
    assert film.seconds == pytest.approx(5, abs=0.2)
    # Matroska says neither how many there are nor always how many a second.
    assert form in ("matroska", "webm") or film.frames == 40


def test_a_film_in_fragments_has_the_length_that_it_says(tmp_path: Path) -> None:
    data = written(
        tmp_path / "film", "mp4", "libx264", {"movflags": "frag_keyframe+empty_moov"}, sound=False
    )
    assert found(data) is None  # FFmpeg does not say it here
    box = b"moov" + _box(b"mvhd", struct.pack(">IIIII", 0, 0, 0, 1000, 0))
    box += _box(b"trak", _box(b"mdia", _box(b"hdlr", bytes(8) + b"vide") + _minf(320, 240)))
    box += _box(b"mvex", _box(b"mehd", struct.pack(">II", 0, 7000)))
    whole = _box(b"ftyp", b"isom") + struct.pack(">I", len(box) + 4) + box
    assert found(whole) == Film(Size(320, 240), 7.0, 210)


def _box(kind: bytes, contents: bytes) -> bytes:
    return struct.pack(">I", 8 + len(contents)) + kind + contents


def _minf(width: int, height: int) -> bytes:
    entry = bytes(40) + struct.pack(">HH", width, height)
    return _box(b"minf", _box(b"stbl", _box(b"stsd", entry) + _box(b"stsz", bytes(12))))


class Counted:
    """A file that counts what is read of it, and answers any place."""

    def __init__(self, data: bytes, *, repeated: bool = False) -> None:
        self.data, self.repeated = data, repeated
        self.reads = self.bytes = 0

    def read(self, start: int, end: int) -> bytes:
        self.reads += 1
        at = start % len(self.data) if self.repeated else start
        part = self.data[at : at + end - start]
        self.bytes += len(part)
        return part


MP4, MKV = film(), film(form="webm", codec="libvpx")


@pytest.mark.parametrize(
    "data",
    [
        _box(b"ftyp", b"isom") + _box(b"free", b"") * 1_000_000,
        _box(b"ftyp", b"isom") + _box(b"moov", _box(b"trak", b"") * 1_000_000),
        _box(b"ftyp", b"isom") + _box(b"moov", _box(b"trak", _box(b"mdia", b"") * 1_000_000)),
        b"\x1a\x45\xdf\xa3\x80" + b"\xec\x80" * 4_000_000,
        b"\x1a\x45\xdf\xa3\x80" + b"\x18\x53\x80\x67\xff" + b"\xec\x80" * 4_000_000,
        b"\x1a\x45\xdf\xa3\x80" + b"\x18\x53\x80\x67\xff" * 1_000_000,
    ],
    ids=["boxes", "tracks", "media", "voids", "segment", "nested"],
)
def test_a_file_of_millions_of_boxes_costs_no_more_than_a_few(data: bytes) -> None:
    file = Counted(data)
    assert film_of(file.read) is None
    assert file.reads <= 2 * MAX_BOXES + 2
    assert file.bytes <= 32 * file.reads


@pytest.mark.parametrize("whole", [MP4, MKV], ids=["mp4", "webm"])
@settings(deadline=None, max_examples=examples(300))
@given(data=st.data())
def test_a_damaged_file_is_read_to_its_bound_and_raises_nothing(whole: bytes, data: Any) -> None:
    """Some bytes changed anywhere in the header, or the end missing."""
    damaged = bytearray(whole)
    heads = [*range(64), *range(max(0, whole.find(b"moov") - 4), len(whole))]
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.sampled_from(heads))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))
    file = Counted(bytes(damaged[:cut]))
    film = film_of(file.read)
    assert film is None or (film.frames > 0 and film.seconds > 0 and all(film.size))
    assert file.reads <= 2 * MAX_BOXES + 2
    if film is not None:
        assert 0 <= RULES[0].tokens_of(film) <= MAX_TOKENS
        assert 0 <= RULES[1].tokens_of(film) <= MAX_TOKENS


RULES = [
    FilmRule(
        bounds=bounds,
        fps=2.0,
        min_frames=4,
        max_frames=768,
        group=2,
        cell=28,
        min_pixels=100_352,
        max_pixels=602_112,
        around=around,
        most_tokens=most,
    )
    for bounds, around, most in (("each", 0, 0), ("all", 8, 0), ("each", 0, 128_000))
]


def test_a_body_of_tens_of_mebibytes_costs_no_more_than_an_image_of_its_size() -> None:
    """Of which nobody reads most, but for the digest; the header is behind it."""
    large = _box(b"ftyp", b"isom") + _box(b"mdat", bytes(24 << 20)) + MP4[MP4.find(b"moov") - 4 :]
    url = data_url(large, "video/mp4")

    def peak(part: dict[str, Any], images: list[PrefixImage]) -> int:
        tracemalloc.start()
        chat_bytes([{"role": "user", "content": [part]}], images=images)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    images: list[PrefixImage] = []
    of_image = peak({"type": "image_url", "image_url": {"url": url}}, images)
    assert peak({"type": "video_url", "video_url": {"url": url}}, images) < of_image + 2**20
    assert images[1].film == found(MP4)
    file = Counted(large)
    film_of(file.read)
    assert file.bytes < 2000


@pytest.mark.parametrize(
    "url",
    ["https://example.com/a.mp4", "data:video/mp4;base64,!!!!", "data:video/mp4;base64,AAAA"],
)
def test_a_video_whose_header_says_nothing_is_taken_for_one_of_ten_seconds(url: str) -> None:
    images: list[PrefixImage] = []
    part = {"type": "video_url", "video_url": {"url": url}}
    chat_bytes([{"role": "user", "content": [part]}], images=images)
    assert [image.film for image in images] == [UNKNOWN_FILM]
    rule = ImageRule(kind="fixed", tokens=576, films=RULES[0])
    assert counted(images, rule)[0].tokens == RULES[0].tokens_of(UNKNOWN_FILM) > 0
    assert counted(images, ImageRule(kind="fixed", tokens=576))[0].tokens == 0


def test_equal_videos_have_equal_bytes_in_every_spelling_and_others_have_not() -> None:
    def canonical(part: object) -> bytes:
        return chat_bytes([{"role": "user", "content": [part]}])

    def video(url: str, **more: str) -> dict[str, Any]:
        return {"type": "video_url", "video_url": {"url": url}, **more}

    url = data_url(MP4, "video/mp4")
    expected = canonical(video(url))
    assert canonical(video(url.rstrip("="))) == expected
    assert canonical(video(data_url(MP4, "video/quicktime"))) == expected
    assert canonical({"type": "video_url", "video_url": url}) == expected
    assert canonical(video(data_url(MKV, "video/webm"))) != expected
    assert canonical({"type": "image_url", "image_url": {"url": url}}) != expected
    assert canonical(video(url, fps="1")) != expected
