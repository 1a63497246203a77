"""`ImageReader`: images and videos of requests, read beside the event loop and within bounds.

Fetches run in threads, since they mostly wait; decoding and processing run in processes. Both are
few, and at most `MAX_READING` images wait for them or are in them. A cancelled read leaves its
queue, or its fetch, at once; a process completes the one image that it is at, but leaves a video
between two frames.
"""

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from pando_fleet.images.rule import ImageRule
from pando_worker.models.text_part import VideoForm
from pando_worker.vision.array_file import ArrayFile, StoredImage
from pando_worker.vision.errors import ImageError, ImagesUnavailableError
from pando_worker.vision.fetching import Fetcher
from pando_worker.vision.processed import Place, Processed
from pando_worker.vision.processing import (
    known,
    load,
    read_and_process,
    read_and_process_video,
)
from pando_worker.vision.video_files import VideoLimits

log = logging.getLogger("pando.worker")

P = ParamSpec("P")
T = TypeVar("T")

MAX_READING = 64
_FETCHES = 8
_BASE64 = 4 / 3  # characters a byte
_HEAD = 128  # characters of a data: URL before its data


@dataclass(frozen=True, slots=True)
class ImageLimits:
    max_bytes: int  # of an encoded image
    max_pixels: int
    hosts: frozenset[str]  # see `Fetcher`


@dataclass(frozen=True, slots=True)
class Videos:
    """How a model sees videos, and which."""

    form: VideoForm
    limits: VideoLimits


class ImageReader:
    """
    Attributes:
        place: of an image in a prompt; None until a process is `loaded`
        video_place: of a video; None if the model sees none
        rule: how many tokens an image takes, if that is known, once a process is `loaded`
    """

    def __init__(
        self,
        model_dir: Path,
        image_token: int,
        limits: ImageLimits,
        *,
        videos: Videos | None = None,
        processes: int = 2,
        fetcher: Fetcher | None = None,
    ) -> None:
        self._model_dir, self._image_token = model_dir, image_token
        self.place: Place | None = None
        self.video_place: Place | None = None
        self.rule: ImageRule | None = None
        self._limits, self._videos = limits, videos
        self._numbers = itertools.count(1)  # of reads of videos
        self._cancelled = get_context("spawn").RawArray("q", MAX_READING)  # as of `load`
        self._processes = processes
        self._fetcher = fetcher or Fetcher(limits.hosts, limits.max_bytes)
        self._reading = 0
        self._threads = ThreadPoolExecutor(_FETCHES, thread_name_prefix="image-fetch")
        self._pool = self._new_pool()

    async def loaded(self) -> None:
        """Wait until a process can read images.

        Raises:
            ImagesUnavailableError: it has logged why it cannot.
        """
        found = await self._in_pool(known)
        self.place, self.video_place, self.rule = found.place, found.video_place, found.rule

    async def read(self, url: str, *, small: bool = False) -> Processed:
        """
        Args:
            small: as of `ImageProcessor.process`

        Raises:
            ImageError: it is not an image that this worker accepts.
            ImagesUnavailableError: too many are being read, or a process ended.
        """
        with self._counted():
            source = await self._source(url)
            limits = self._limits
            (image,) = await self._in_file(
                read_and_process, source, limits.max_bytes, limits.max_pixels, small
            )
            return image

    async def read_video(self, url: str) -> list[Processed]:
        """The frames of a video, for a model that sees some. Raises like `read`."""
        assert self._videos is not None
        limits, number = self._videos.limits, next(self._numbers)
        with self._counted():
            if url[:5].lower() != "data:":
                raise ImageError("must be data:video/mp4;base64,... : other URLs are not read")
            _check_length(url, limits.max_bytes)
            try:
                return await self._in_file(read_and_process_video, url, limits, number)
            except asyncio.CancelledError:
                self._cancelled[number % len(self._cancelled)] = number
                raise

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._reading >= MAX_READING:
            raise ImagesUnavailableError(f"{self._reading} images are already being read")
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _source(self, url: str) -> str | bytes:
        """A `data:` URL as it is, which is decoded beside the event loop; or the bytes behind any
        other."""
        if url[:5].lower() != "data:":
            return await self._fetched(url)
        _check_length(url, self._limits.max_bytes)
        return url

    async def _fetched(self, url: str) -> bytes:
        cancelled = threading.Event()
        try:
            # The name's resolution has no time limit of its own.
            async with asyncio.timeout(self._fetcher.timeout_s + 1):
                return await _result(self._threads.submit(self._fetcher.fetch, url, cancelled))
        except TimeoutError as error:
            raise ImageError(f"did not arrive within {self._fetcher.timeout_s:g} s") from error
        finally:
            cancelled.set()

    async def _in_file(
        self,
        work: Callable[Concatenate[Path, P], list[StoredImage]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> list[Processed]:
        """What `work` makes, whose arrays it writes to an `ArrayFile`."""
        with self._working_pool() as pool:
            file = ArrayFile()
            future = pool.submit(work, file.path, *args, **kwargs)
            try:
                stored = await _result(future)
                return file.loaded(stored)
            finally:  # if this read is cancelled, `work` may write still
                future.add_done_callback(lambda _: file.close())

    async def _in_pool(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._working_pool() as pool:
            return await _result(pool.submit(work, *args, **kwargs))

    @contextmanager
    def _working_pool(self) -> Iterator[ProcessPoolExecutor]:
        """The pool, which another one replaces if one of its processes ends."""
        pool = self._pool
        try:
            yield pool
        except BrokenProcessPool as error:
            if self._pool is pool:
                log.error("a process that reads images ended; others take its place")
                self._pool = self._new_pool()
            raise ImagesUnavailableError("a process that reads images ended") from error

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._processes,
            mp_context=get_context("spawn"),
            initializer=load,
            initargs=(
                self._model_dir,
                self._image_token,
                self._videos.form if self._videos else None,
                self._cancelled,
            ),
        )


def _check_length(url: str, max_bytes: int) -> None:
    """Of a `data:` URL, before it is decoded."""
    if len(url) > _HEAD + _BASE64 * (max_bytes + 2):
        raise ImageError(f"has more than {max_bytes} bytes")


async def _result(future: Future[T]) -> T:
    """Of work that never begins if it is cancelled before."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        with suppress(RuntimeError):
            future.cancel()
        raise
