"""Images from URL to pixel values, in the processes that do it."""

import asyncio
import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest

from pando_fleet.images.rule import ImageRule
from pando_worker.models.config import read_config
from pando_worker.reading import pool as reading
from pando_worker.reading.array_file import ArrayFile, StoredRead
from pando_worker.vision.errors import ImageError, ImagesUnavailableError
from pando_worker.vision.processed import Processed
from pando_worker.vision.reader import ImageLimits, ImageReader, Videos
from tests.waiting import PATIENCE_S, read_each, until_async
from tests.worker.vision.asked_films import LIMITS as VIDEO_LIMITS
from tests.worker.vision.checkpoints import Seer
from tests.worker.vision.every import EVERY
from tests.worker.vision.films import film
from tests.worker.vision.odd_files import odd_exif, warned_by
from tests.worker.vision.photographs import data_url, encoded, path, photograph
from tests.worker.vision.qwen import save_qwen
from tests.worker.vision.reading_process import has_torch, page_faults_an_image, processed

LIMITS = ImageLimits(max_bytes=10**6, max_pixels=500_000, hosts=frozenset())


IMAGES = ("astronaut.png", "chelsea.png", "rocket.jpg", "page.png")


def assert_equal(
    found: Sequence[Sequence[Processed]], expected: Sequence[Sequence[Processed]], family: str
) -> None:
    for image, same in zip(chain(*found), chain(*expected), strict=True):
        assert replace(image, arrays={}) == replace(same, arrays={}), family  # also the digest
        for name, array in same.arrays.items():
            np.testing.assert_array_equal(image.arrays[name], array, family, strict=True)


@pytest.fixture(scope="module")
def reader(llava: Seer) -> Iterator[ImageReader]:
    reader = ImageReader(llava.path, llava.image_token, LIMITS, processes=1)
    yield reader
    reader.close()


@pytest.mark.parametrize("name", ["astronaut.png", "chelsea.png", "rocket.jpg"])
async def test_pixels_and_tokens_are_those_of_the_models_processor(
    reader: ImageReader, llava: Seer, name: str
) -> None:
    (found,) = await reader.read(data_url(path(name).read_bytes()))
    expected = llava.processor(images=[photograph(name)], text=["<image>"], return_tensors="np")
    np.testing.assert_array_equal(found.arrays["pixel_values"], expected["pixel_values"])
    assert found.token_ids == expected["input_ids"][0].tolist()
    assert (found.first, found.length) == (0, 16)


def test_without_torch_every_family_has_the_same_pixels_and_tokens(tmp_path: Path) -> None:
    seers = {name: make(tmp_path / name) for name, make in EVERY.items()}
    models = [(seer.path, seer.image_token) for seer in seers.values()]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        found = process.submit(processed, models, IMAGES).result(PATIENCE_S)
    for family, seer, images in zip(seers, seers.values(), found, strict=True):
        expected = [seer.ours.process(photograph(name)) for name in IMAGES]
        assert_equal(images, expected, family)


async def test_a_process_that_reads_images_has_no_torch(reader: ImageReader) -> None:
    await reader.loaded()
    assert not await reader.pool.run(has_torch)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc")
async def test_an_image_finds_the_memory_that_earlier_ones_freed(reader: ImageReader) -> None:
    assert await reader.pool.run(page_faults_an_image, "chelsea.png", 1600, 1200) < 500


async def test_digest_is_of_what_is_seen(reader: ImageReader) -> None:
    cat = photograph("chelsea.png")
    png = encoded(cat, "PNG")
    same = [
        data_url(png),
        data_url(png, "image/webp"),
        data_url(encoded(cat, "WEBP", lossless=True)),
    ]
    digests = {(await reader.read(url))[0].digest for url in same}
    assert len(digests) == 1
    (other,) = await reader.read(data_url(encoded(photograph("coffee.png"), "PNG")))
    assert other.digest not in digests
    assert len(other.digest) == 16


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (data_url(b"text"), "is not an image"),
        (data_url(path("hubble_deep_field.jpg").read_bytes()), "1000 x 872 = 872000 pixels"),
        (data_url(bytes(10**6 + 1)), "has 1000001 bytes; this worker accepts 1000000"),
        (data_url(bytes(2 * 10**6)), "has more than 1000000 bytes"),
        ("http://pictures.example/", "from which this worker does not fetch"),
    ],
    ids=["text", "pixels", "bytes", "far more bytes", "host"],
)
async def test_what_is_refused_says_why(reader: ImageReader, url: str, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        await reader.read(url)


async def test_odd_files_write_nothing_to_the_log(reader: ImageReader) -> None:
    """Pillow would warn of each odd tag: 60,000 lines for a file of 720 KB."""
    await reader.read(data_url(odd_exif(100)))
    assert await reader.pool.run(warned_by, "PIL.TiffImagePlugin") == 0
    assert await reader.pool.run(warned_by, "elsewhere") == 1


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux has this policy")
async def test_it_leaves_the_cores_to_the_engine(reader: ImageReader) -> None:
    await reader.loaded()
    children = read_each(psutil.Process().children(), lambda one: os.sched_getscheduler(one.pid))
    assert os.SCHED_IDLE in {policy for _, policy in children}


async def test_it_knows_how_many_tokens_an_image_takes(reader: ImageReader) -> None:
    await reader.loaded()
    assert reader.rule == ImageRule(kind="fixed", tokens=16)


async def test_no_more_are_read_at_once_than_fit(
    reader: ImageReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_READING", 2)
    url = data_url(path("chelsea.png").read_bytes())
    reads = [asyncio.ensure_future(reader.read(url)) for _ in range(3)]
    done = await asyncio.gather(*reads, return_exceptions=True)
    assert [isinstance(one, ImagesUnavailableError) for one in done] == [False, False, True]
    assert (await reader.read(url))[0].length == 16  # what ended made room


async def test_a_cancelled_read_makes_room(
    reader: ImageReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_READING", 4)
    url = data_url(path("astronaut.png").read_bytes())
    reads = [asyncio.ensure_future(reader.read(url)) for _ in range(4)]
    await asyncio.sleep(0)
    for read in reads[1:]:
        read.cancel()
    done = await asyncio.gather(*reads, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in done] == [False, True, True, True]
    assert (await reader.read(url))[0].length == 16


async def test_a_process_that_ends_is_replaced(reader: ImageReader) -> None:
    with pytest.raises(ImagesUnavailableError, match="ended"):
        await reader.pool.run(os._exit, 1)
    assert (await reader.read(data_url(path("chelsea.png").read_bytes())))[0].length == 16


async def test_a_cancelled_video_leaves_its_process(tmp_path: Path) -> None:
    config = read_config(save_qwen(tmp_path, "qwen3-vl"))
    assert config.image_token is not None and config.video is not None
    reader = ImageReader(
        tmp_path,
        config.image_token,
        LIMITS,
        videos=Videos(config.video, VIDEO_LIMITS),
        processes=1,
    )
    try:
        url = data_url(film(), "video/mp4")
        assert len(await reader.read_video(url)) == 3
        cancelled = asyncio.ensure_future(reader.read_video(url))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert 2 in list(reader.pool.cancelled)  # the second read, as its process finds it
        reader.pool.cancelled[3] = 3
        with pytest.raises(ImageError, match="was cancelled"):
            await reader.read_video(url)
        assert len(await reader.read_video(url)) == 3
    finally:
        reader.close()


def _late(path: Path, folder: Path) -> list[StoredRead[Processed]]:
    """Says in `folder` which file it has, when it begins and, once it may go on, at its end."""
    (folder / "begun").write_text(str(path.stat().st_ino))
    while not (folder / "go").exists():
        time.sleep(0.001)
    (folder / "end").write_text(str(path.stat().st_ino))
    return []


async def test_the_file_of_a_cancelled_read_stays_until_its_process_is_done(
    reader: ImageReader, tmp_path: Path
) -> None:
    """Its path would be that of another file, to which the process would write."""
    read = asyncio.ensure_future(reader.pool.read(_late, tmp_path))
    begun = tmp_path / "begun"
    await until_async(lambda: begun.exists() and begun.read_text(), "it has begun")
    read.cancel()
    await asyncio.gather(read, return_exceptions=True)
    others = [ArrayFile() for _ in range(8)]
    (tmp_path / "go").touch()
    assert (await reader.read(data_url(path("chelsea.png").read_bytes())))[0].length == 16
    assert (tmp_path / "end").read_text() == begun.read_text()
    for other in others:
        other.close()
    await until_async(lambda: not _array_files(), "no file is open")


def _array_files() -> list[str]:
    """Those that this process has open."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(each.readlink()))
    return [name for name in found if "pando-arrays" in name]
