"""Bytes of a video to some of its frames, with bounds on all that they cost, by PyAV.

A file may claim anything about itself, so nothing is believed but its packets: how many frames it
has and how long they take comes from a pass over these, which decodes nothing. Only containers that
hold all their data are read, by the first bytes: FFmpeg has others that name further files or URLs.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pando_worker.vision.bounds import bounded
from pando_worker.vision.errors import ImageError

Frame = NDArray[np.uint8]  # [height, width, 3], RGB

ACCEPTED = "MP4, MOV, WebM or Matroska with H.264, HEVC, VP8, VP9, AV1 or MPEG-4 inside"
_CODECS = frozenset(["h264", "hevc", "vp8", "vp9", "av1", "mpeg4"])
_MOST_RATE = 240  # frames a second, of those that are accepted: bounds the frames to decode
_MOST_CPU_S = 60.0  # of a video


@dataclass(frozen=True, slots=True)
class VideoLimits:
    max_bytes: int  # of an encoded video
    max_seconds: float
    max_frames: int  # that the model sees
    max_pixels: int  # of a frame


@dataclass(frozen=True, slots=True)
class Video:
    """A video of which the frames are counted, not decoded.

    Attributes:
        count: frames
        rate: frames a second
    """

    count: int
    rate: float
    _data: bytes
    _format: str
    _max_pixels: int
    _go_on: Callable[[], None]

    def frames(self, wanted: Sequence[int]) -> Iterator[Frame]:
        """Those with these indices, which ascend; turned as the file says.

        Raises:
            ImageError: they cannot be decoded, or are of more pixels than accepted.
        """
        left = iter(wanted)
        following = next(left, None)
        with _opened(self._data, self._format, self._max_pixels) as container:
            for index, frame in enumerate(container.decode(video=0)):
                self._go_on()
                _check_size(frame.width, frame.height, self._max_pixels)
                while following == index:
                    yield _turned(frame)
                    following = next(left, None)
                if following is None:
                    return
        raise ImageError(f"is a damaged video: frame {following} of {self.count} is missing")


@contextmanager
def reading(data: bytes, limits: VideoLimits, is_cancelled: Callable[[], bool]) -> Iterator[Video]:
    """A video to take frames of, while the block runs.

    Args:
        is_cancelled: asked between frames; the block then ends with an ImageError

    Raises:
        ImageError: not a video that is accepted.
    """

    def go_on() -> None:
        if is_cancelled():
            raise ImageError("was cancelled")

    import av  # here: only the processes that read videos need FFmpeg in memory

    form = _format(data)
    try:
        with bounded(_MOST_CPU_S):
            yield _counted(data, form, limits, go_on)
    except (ImageError, GeneratorExit):
        raise
    except (av.FFmpegError, ValueError, OverflowError) as error:
        raise ImageError(f"is a damaged video: {error}") from error


def _counted(data: bytes, form: str, limits: VideoLimits, go_on: Callable[[], None]) -> Video:
    most = int(limits.max_seconds * _MOST_RATE)
    count, first, last = 0, None, None
    with _opened(data, form, limits.max_pixels) as container:
        stream = container.streams.video[0]
        for packet in container.demux(stream):
            if packet.size == 0 or packet.is_discard:
                continue
            if (count := count + 1) > most:
                raise ImageError(f"has more than {most} frames")
            if packet.pts is not None:
                first = packet.pts if first is None else min(first, packet.pts)
                last = packet.pts if last is None else max(last, packet.pts)
            if count % 256 == 0:
                go_on()
        if count < 2 or first is None or last is None or first == last or not stream.time_base:
            raise ImageError("has no two frames at different times")
        rate = (count - 1) / float((last - first) * stream.time_base)
        said = float(stream.average_rate or 0)
    if abs(said - rate) < rate / 10:  # timestamps are rounded, in milliseconds in WebM
        rate = said
    if count / rate > limits.max_seconds:
        raise ImageError(f"has {count / rate:.1f} s; this worker accepts {limits.max_seconds:g} s")
    return Video(count, rate, data, form, limits.max_pixels, go_on)


def _format(data: bytes) -> str:
    """FFmpeg's name of the container."""
    if data[4:8] == b"ftyp":
        return "mov"
    if data[:4] == b"\x1a\x45\xdf\xa3":
        return "matroska"
    raise ImageError(f"is not a video in the format {ACCEPTED}")


@contextmanager
def _opened(data: bytes, form: str, max_pixels: int) -> Iterator[Any]:
    import av

    options = {"max_pixels": str(max_pixels), "protocol_whitelist": "none"}
    with av.open(io.BytesIO(data), format=form, options=options) as container:
        if not container.streams.video:
            raise ImageError("has no video")
        stream = container.streams.video[0]
        codec = stream.codec_context
        if codec is None:
            raise ImageError(f"names no codec that is known, not {ACCEPTED}")
        if codec.codec.canonical_name not in _CODECS:
            raise ImageError(f"has the codec {codec.codec.canonical_name}, not {ACCEPTED}")
        _check_size(codec.width, codec.height, max_pixels)
        codec.options = {"max_pixels": str(max_pixels)}
        codec.thread_count = 1
        yield container


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise ImageError(
            f"has frames of {width} x {height} = {width * height} pixels; this worker accepts"
            f" {max_pixels}"
        )


def _turned(frame: Any) -> Frame:
    pixels: Frame = frame.to_ndarray(format="rgb24")
    return np.ascontiguousarray(np.rot90(pixels, frame.rotation // 90))
