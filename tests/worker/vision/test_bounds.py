"""No file costs its process more than bounded time and memory."""

import signal
import time
from contextlib import suppress

import pytest
from PIL import Image

from pando_worker.vision.bounds import bounded
from pando_worker.vision.decoding import MAX_JPEG_SCANS, MAX_JPEG_SEGMENTS, decode
from pando_worker.vision.errors import ImageError
from tests.worker.vision.odd_files import many_scans, many_segments
from tests.worker.vision.photographs import encoded, photograph

PLENTY = 10**8


def test_a_block_that_does_not_end_is_left() -> None:
    """Though it catches what it can."""
    started = time.process_time()
    with pytest.raises(ImageError, match=r"takes more than 0\.1 s to decode"), bounded(0.1):
        while True:
            with suppress(Exception):
                time.process_time()
    assert 0.05 < time.process_time() - started < 2
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_time_in_a_finalizer_only_delays_the_end() -> None:
    class Slow:
        def __del__(self) -> None:
            spend(0.3)

    with pytest.raises(ImageError, match="takes more than"), bounded(0.1):
        Slow()
        spend(5)


def spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_memory_is_refused_beyond_its_bound_and_only_within_the_block() -> None:
    with pytest.raises(ImageError, match="takes too much memory"), bounded(60):
        bytearray(4 * 2**30)
    assert len(bytearray(100 * 2**20)) == 100 * 2**20


def test_what_is_within_bounds_passes() -> None:
    with bounded(60):
        pass
    with pytest.raises(KeyError), bounded(60):
        raise KeyError
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_a_jpeg_file_of_scans_alone_is_refused_undecoded() -> None:
    """132 KB of these would take half a minute at 33 million pixels, and 20 MiB two hours."""
    decode(many_scans(MAX_JPEG_SCANS, 16), PLENTY)
    data = many_scans(200_000, 5000)
    started = time.process_time()
    with pytest.raises(ImageError, match=f"more than {MAX_JPEG_SCANS} scans"):
        decode(data, PLENTY)
    assert time.process_time() - started < 0.2


def test_a_jpeg_file_of_segments_alone_is_refused_undecoded() -> None:
    decode(many_segments(1000), PLENTY)
    with pytest.raises(ImageError, match=f"more than {MAX_JPEG_SEGMENTS} segments"):
        decode(many_segments(10**6), PLENTY)


def test_what_cameras_and_programs_write_is_decoded() -> None:
    """Progressive, with intervals to restart at, several pictures in a file, and a film behind."""
    cat = photograph("chelsea.png")
    plain = encoded(cat, "JPEG")
    expected = decode(plain, PLENTY).tobytes()
    film = b"\xff\xda\xff\xc0" * 100_000
    assert decode(plain + film, PLENTY).tobytes() == expected
    assert decode(encoded(cat, "JPEG", restart_marker_rows=1), PLENTY).tobytes() == expected
    several = encoded(cat, "MPO", save_all=True, append_images=[Image.new("RGB", (9, 9))] * 9)
    assert decode(several, PLENTY).tobytes() == expected
    assert decode(encoded(cat, "JPEG", progressive=True), PLENTY).tobytes() == expected
