"""An image or a video to pixel values and prompt tokens, by the model's processor in transformers.

Importing transformers' image processors imports torch, which the HTTP process does without; and a
decoder that crashes on a malicious file must not take the streams of others with it. So this runs
in processes of their own, each of which loads the processor once (`load`).
"""

import logging
import os
import signal
import sys
from collections.abc import MutableSequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pando_fleet.images.rule import ImageRule
from pando_worker.models.text_part import VideoForm
from pando_worker.parent import end_with_parent
from pando_worker.vision.array_file import StoredImage, store
from pando_worker.vision.decoding import data_of, decode
from pando_worker.vision.errors import ImageError
from pando_worker.vision.patches import PatchProcessor
from pando_worker.vision.processed import Array, Place, Processed, digest_of
from pando_worker.vision.processors import GRIDS, make_processor
from pando_worker.vision.rules import rule_of
from pando_worker.vision.video_files import VideoLimits, reading
from pando_worker.vision.videos import VideoProcessor, read_fields

log = logging.getLogger("pando.worker")

LOW = 512 * 512
"""Pixels of an image with `detail` low, as in OpenAI's API."""

_OF_TEXT = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")


class ImageProcessor:
    """A model's processor, for one image after the other.

    Attributes:
        place: of an image in a prompt
        rule: how many tokens an image takes; None if that is not known
    """

    def __init__(self, processor: Any, image_token: int) -> None:
        """
        Args:
            processor: of `make_processor`
            image_token: the token whose embeddings are an image's
        """
        self._processor, self._image_token = processor, image_token
        added = processor.tokenizer.added_tokens_decoder
        self._special = {image_token, *(token for token, one in added.items() if one.special)}
        self.place = self._place()
        self.rule = rule_of(processor, LOW)

    def process(self, image: Image.Image, *, small: bool = False) -> Processed:
        """
        Args:
            small: whether an image beyond `LOW` pixels shall become smaller, in models that see it
                at its own size

        Raises:
            ImageError: the processor refuses it, for instance because it is too narrow.
        """
        at_own_size = isinstance(self._processor, PatchProcessor)
        options = {"most_pixels": LOW} if small and at_own_size else {}
        try:
            found = self._call(image, **options)
        except ValueError as error:
            raise ImageError(f"cannot be used: {error}") from error
        ids = found["input_ids"][0]
        ids = ids[slice(*self._core(ids))]
        places = np.flatnonzero(ids == self._image_token)
        first, length = int(places[0]), int(places[-1] - places[0]) + 1
        arrays = {name: _array(found[name]) for name in sorted(found) if name not in _OF_TEXT}
        return Processed(digest_of(arrays), ids.tolist(), first, length, arrays, self._grid(arrays))

    def _call(self, image: Image.Image, **options: Any) -> Any:
        return self._processor(
            images=[image],
            text=[self._processor.image_token],
            add_special_tokens=False,
            return_tensors="np",
            **options,
        )

    def _grid(self, arrays: dict[str, Array]) -> tuple[int, int, int] | None:
        if GRIDS not in arrays:
            return None
        frames, rows, columns = arrays[GRIDS][0].tolist()  # of patches
        merged = self._processor.image_processor.merge_size
        return frames, rows // merged, columns // merged

    def _place(self) -> Place:
        tokenizer, text = self._processor.tokenizer, self._processor.image_token
        ids = self._call(Image.new("RGB", (64, 48)))["input_ids"][0]
        first, end = self._core(ids)
        return Place(
            text=text,
            token=tokenizer.convert_tokens_to_ids(text),
            before=tokenizer.decode(ids[:first], clean_up_tokenization_spaces=False),
            after=tokenizer.decode(ids[end:], clean_up_tokenization_spaces=False),
        )

    def _core(self, ids: NDArray[np.int64]) -> tuple[int, int]:
        """The special tokens of an image's, from the first to behind the last: text beside them is
        never in one token with them."""
        special = np.flatnonzero([token in self._special for token in ids.tolist()])
        return int(special[0]), int(special[-1]) + 1


@dataclass(frozen=True, slots=True)
class Known:
    """What the HTTP process needs to know of a model's processor.

    Attributes:
        place: of an image in a prompt
        video_place: None if the model sees no videos
        rule: how many tokens an image takes, if that is known
    """

    place: Place
    video_place: Place | None
    rule: ImageRule | None


def load(
    model_dir: Path, image_token: int, video: VideoForm | None, cancelled: MutableSequence[int]
) -> None:
    """Prepare this process.

    Args:
        image_token: as of `ImageProcessor`
        video: how the model sees videos; None: not at all
        cancelled: shared with the parent, which writes the number of a cancelled read at this
            number's remainder by the length

    Raises:
        Exception: whatever transformers raises for a processor that it cannot load.
    """
    global _processor, _videos, _cancelled
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: the parent drains first
    end_with_parent()
    processor = make_processor(model_dir)
    _processor, _cancelled = ImageProcessor(processor, image_token), cancelled
    if video is not None:
        _videos = _video_processor(model_dir, video, processor.tokenizer)
    if sys.platform == "linux":
        # From here on: large images take cores that the engine leaves idle. A high niceness does
        # not suffice: an engine's thread that wakes would still wait for the other's slice to end.
        with suppress(PermissionError):  # of a sandbox, in which streams are slower then
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _video_processor(model_dir: Path, form: VideoForm, tokenizer: Any) -> VideoProcessor | None:
    try:
        return VideoProcessor(form, read_fields(model_dir, form), tokenizer)
    except ValueError as error:  # also msgspec's
        log.warning("this model could see videos but does not here: %s", error)
        return None


def known() -> Known:
    """Runs in a process once `load` has."""
    assert _processor is not None
    rule = _processor.rule
    if _videos is None:
        return Known(_processor.place, None, rule)
    if rule is not None:
        rule = replace(rule, films=_videos.rule)
    return Known(_processor.place, _videos.place, rule)


def read_and_process(
    path: Path, source: str | bytes, max_bytes: int, max_pixels: int, small: bool
) -> list[StoredImage]:
    """One image.

    Args:
        path: of an `ArrayFile`
        source: a `data:` URL, or the bytes of a file
        small: as of `ImageProcessor.process`

    Raises:
        ImageError: it is not an image, or too large.
    """
    data = data_of(source) if isinstance(source, str) else source
    _check_bytes(data, max_bytes)
    assert _processor is not None
    return store(path, [_processor.process(decode(data, max_pixels), small=small)])


def read_and_process_video(
    path: Path, url: str, limits: VideoLimits, number: int
) -> list[StoredImage]:
    """The frames of one video.

    Args:
        path: of an `ArrayFile`
        url: a `data:` URL
        number: of this read, as of `load`

    Raises:
        ImageError: it is not a video, or too large, or was cancelled.
    """
    data = data_of(url)
    _check_bytes(data, limits.max_bytes)
    assert _videos is not None

    def is_cancelled() -> bool:
        return _cancelled[number % len(_cancelled)] == number

    with reading(data, limits, is_cancelled) as video:
        return store(path, _videos.process(video, limits.max_frames))


def _check_bytes(data: bytes, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise ImageError(f"has {len(data)} bytes; this worker accepts {max_bytes}")


# Of this process:
_processor: ImageProcessor | None = None
_videos: VideoProcessor | None = None  # None if the model sees none
_cancelled: MutableSequence[int] = [0]


def _array(values: Any) -> Array:
    array = np.asarray(values)
    if np.issubdtype(array.dtype, np.floating):
        return np.ascontiguousarray(array, dtype=np.float32)
    if np.issubdtype(array.dtype, np.integer):
        return np.ascontiguousarray(array, dtype=np.int64)
    return np.ascontiguousarray(array, dtype=np.bool_)
