"""`ImageReader`: images and videos of requests, read beside the event loop and within bounds.

Fetches run in threads, since they mostly wait; decoding and processing run in the processes of a
`ReadingPool`. Both are few. A cancelled read leaves its queue, or its fetch, at once; a process
completes the one image that it is at, but leaves a video between two frames.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pando_fleet.images.rule import ImageRule
from pando_worker.models.kinds.text_part import VideoForm
from pando_worker.reading.pool import ReadingPool, result
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
        self.place: Place | None = None
        self.video_place: Place | None = None
        self.rule: ImageRule | None = None
        self._limits, self._videos = limits, videos
        self._fetcher = fetcher or Fetcher(limits.hosts, limits.max_bytes)
        self._threads = ThreadPoolExecutor(_FETCHES, thread_name_prefix="image-fetch")
        self.pool = ReadingPool(
            "images",
            ImagesUnavailableError,
            load,
            (model_dir, image_token, videos.form if videos else None),
            processes=processes,
            only_idle_cores=True,
        )

    async def loaded(self) -> None:
        """Wait until a process can read images.

        Raises:
            ImagesUnavailableError: it has logged why it cannot.
        """
        found = await self.pool.run(known)
        self.place, self.video_place, self.rule = found.place, found.video_place, found.rule

    async def read(self, url: str, *, small: bool = False) -> list[Processed]:
        """One image, as of `ImageProcessor.process`.

        Args:
            small: whether the client wants little `detail`

        Raises:
            ImageError: it is not an image that this worker accepts.
            ImagesUnavailableError: too many are being read, or a process ended.
        """
        with self.pool.counted():
            source = await self._source(url)
            limits = self._limits
            return await self.pool.read(
                read_and_process, source, limits.max_bytes, limits.max_pixels, small
            )

    async def read_video(self, url: str) -> list[Processed]:
        """The frames of a video, for a model that sees some. Raises like `read`."""
        assert self._videos is not None
        limits = self._videos.limits
        with self.pool.counted():
            if url[:5].lower() != "data:":
                raise ImageError("must be data:video/mp4;base64,... : other URLs are not read")
            _check_length(url, limits.max_bytes)
            with self.pool.cancellable() as number:
                return await self.pool.read(read_and_process_video, url, limits, number)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.pool.close()

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
                return await result(self._threads.submit(self._fetcher.fetch, url, cancelled))
        except TimeoutError as error:
            raise ImageError(f"did not arrive within {self._fetcher.timeout_s:g} s") from error
        finally:
            cancelled.set()


def _check_length(url: str, max_bytes: int) -> None:
    """Of a `data:` URL, before it is decoded."""
    if len(url) > _HEAD + _BASE64 * (max_bytes + 2):
        raise ImageError(f"has more than {max_bytes} bytes")
