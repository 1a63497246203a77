"""An image or a video to pixel values and prompt tokens, by the model's processor in transformers.

A processor takes seconds to load and a good part of one to run, and a decoder that crashes on a
malicious file must not take the streams of others with it. So this runs in processes of their own,
each of which loads the processor once (`load`).
"""

import logging
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pando_fleet.free_memory import keep_freed_memory
from pando_fleet.images.rule import ImageRule
from pando_worker.models.kinds.text_part import VideoForm
from pando_worker.reading.array_file import Array, StoredRead, store
from pando_worker.reading.pool import is_cancelled
from pando_worker.reading.torchless import without_torch
from pando_worker.vision.bounds import bounded
from pando_worker.vision.decoding import data_of, decode
from pando_worker.vision.detail import LOW, arguments_of
from pando_worker.vision.errors import ImageError
from pando_worker.vision.processed import Place, Processed, digest_of
from pando_worker.vision.processors import GRIDS, make_processor
from pando_worker.vision.rules import rule_of
from pando_worker.vision.video_files import VideoLimits, reading
from pando_worker.vision.videos import VideoProcessor, read_fields

log = logging.getLogger("pando.worker")

_MOST_CPU_S = 20.0  # of an image
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
        self._arguments = arguments_of(processor)
        self.place = self._place()
        self.rule = rule_of(processor, LOW)

    def process(self, image: Image.Image, *, small: bool = False) -> list[Processed]:
        """The image, and parts of it that the model sees as images of their own.

        Args:
            small: whether the client wants little `detail`

        Raises:
            ImageError: the processor refuses it, for instance because it is too narrow.
        """
        arguments = self._arguments.low if small else self._arguments.usual
        try:
            found = self._call(image, **arguments)
        except ValueError as error:
            raise ImageError(f"cannot be used: {error}") from error
        ids = found["input_ids"][0]
        first, end = self._core(ids)
        arrays = {name: _array(found[name]) for name in sorted(found) if name not in _OF_TEXT}
        if arguments.get("do_pan_and_scan"):
            return self._views(self._text(ids[:first]), ids[first:end], arrays)
        return [self._processed(ids[first:end], arrays)]

    def _views(
        self, before: str, ids: NDArray[np.int64], arrays: dict[str, Array]
    ) -> list[Processed]:
        """The whole image and its crops, whose tokens see only those of the same one."""
        of_image = ids == self._image_token
        starts = np.flatnonzero(of_image[1:] & ~of_image[:-1]) + 1
        parts = np.split(ids, starts[1:])
        views = [
            self._processed(part, {name: array[at : at + 1] for name, array in arrays.items()})
            for at, part in enumerate(parts)
        ]
        views[0] = replace(views[0], before=before.removesuffix(self.place.before))
        return views

    def _processed(self, ids: NDArray[np.int64], arrays: dict[str, Array]) -> Processed:
        places = np.flatnonzero(ids == self._image_token)
        first, length = int(places[0]), int(places[-1] - places[0]) + 1
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
        ids = self._call(Image.new("RGB", (64, 48)), **self._arguments.low)["input_ids"][0]
        first, end = self._core(ids)
        return Place(
            text=text,
            token=tokenizer.convert_tokens_to_ids(text),
            before=self._text(ids[:first]),
            after=self._text(ids[end:]),
        )

    def _text(self, ids: NDArray[np.int64]) -> str:
        text: str = self._processor.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return text

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


def load(model_dir: Path, image_token: int, video: VideoForm | None) -> None:
    """Prepare this process, which has not imported torch and does so for videos only.

    Args:
        image_token: as of `ImageProcessor`
        video: how the model sees videos; None: not at all

    Raises:
        Exception: whatever transformers raises for a processor that it cannot load.
    """
    global _processor, _videos
    keep_freed_memory()  # the arrays of one image are as large as those of the next
    warnings.filterwarnings("ignore", module="PIL")  # one for each odd tag: whatever clients write
    with without_torch():
        processor = make_processor(model_dir)
        _processor = ImageProcessor(processor, image_token)
    if video is not None:
        _videos = _video_processor(model_dir, video, processor.tokenizer)


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
) -> list[StoredRead[Processed]]:
    """One image, as of `ImageProcessor.process`.

    Args:
        path: of an `ArrayFile`
        source: a `data:` URL, or the bytes of a file
        small: whether the client wants little `detail`

    Raises:
        ImageError: it is not an image, or too large.
    """
    data = data_of(source) if isinstance(source, str) else source
    _check_bytes(data, max_bytes)
    assert _processor is not None
    with bounded(_MOST_CPU_S):
        images = _processor.process(decode(data, max_pixels), small=small)
    return store(path, images)


def read_and_process_video(
    path: Path, url: str, limits: VideoLimits, number: int
) -> list[StoredRead[Processed]]:
    """The frames of one video.

    Args:
        path: of an `ArrayFile`
        url: a `data:` URL
        number: of this read, as of `ReadingPool.cancellable`

    Raises:
        ImageError: it is not a video, or too large, or was cancelled.
    """
    data = data_of(url)
    _check_bytes(data, limits.max_bytes)
    assert _videos is not None
    with reading(data, limits, lambda: is_cancelled(number)) as video:
        return store(path, _videos.process(video, limits.max_frames))


def _check_bytes(data: bytes, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise ImageError(f"has {len(data)} bytes; this worker accepts {max_bytes}")


# Of this process:
_processor: ImageProcessor | None = None
_videos: VideoProcessor | None = None  # None if the model sees none


def _array(values: Any) -> Array:
    array = np.asarray(values)
    if np.issubdtype(array.dtype, np.floating):
        return np.ascontiguousarray(array, dtype=np.float32)
    if np.issubdtype(array.dtype, np.integer):
        return np.ascontiguousarray(array, dtype=np.int64)
    return np.ascontiguousarray(array, dtype=np.bool_)
