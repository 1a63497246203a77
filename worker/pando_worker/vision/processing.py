"""An image to pixel values and prompt tokens, by the model's processor in transformers.

Importing transformers' image processors imports torch, which the HTTP process does without; and a
decoder that crashes on a malicious file must not take the streams of others with it. So this runs
in processes of their own, each of which loads the processor once (`load`).
"""

import ctypes
import hashlib
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pando_fleet.images.rule import ImageRule
from pando_worker.vision.decoding import data_of, decode
from pando_worker.vision.errors import ImageError
from pando_worker.vision.patches import PatchProcessor
from pando_worker.vision.processors import GRIDS, make_processor
from pando_worker.vision.rules import rule_of

Array = NDArray[np.float32] | NDArray[np.int64] | NDArray[np.bool_]

LOW = 512 * 512
"""Pixels of an image with `detail` low, as in OpenAI's API."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_OF_TEXT = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")


@dataclass(frozen=True, slots=True)
class Place:
    """What stands for an image in a prompt before its tokens are there.

    Attributes:
        text: as the chat template writes it
        token: this text as a token
        before, after: text that the processor puts around an image's tokens. It is tokenized
            together with the prompt's own text.
    """

    text: str
    token: int
    before: str
    after: str

    def surrounded(self, prompt: str) -> str:
        """A prompt's text, with the processor's text around each place."""
        if not self.before and not self.after:
            return prompt
        return prompt.replace(self.text, self.before + self.text + self.after)


@dataclass(frozen=True, slots=True)
class Processed:
    """An image as the model takes it.

    Attributes:
        digest: 16 bytes, of the arrays: equal for equal images, however they were sent
        token_ids: what stands for the image in the prompt
        first, length: the part of these from the first to the last image token, which embeddings of
            the vision tower replace; between them are marks, such as the ends of rows
        arrays: what the vision tower takes for this image, by the names of its arguments: pixel
            values in float32, and for many models sizes or grids in int64. The first dimension of
            each is that along which those of several images are joined.
        grid: frames, rows and columns of its tokens, for a model that gives them positions in these
            three dimensions
    """

    digest: bytes
    token_ids: list[int]
    first: int
    length: int
    arrays: dict[str, Array]
    grid: tuple[int, int, int] | None = None


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
        return Processed(_digest(arrays), ids.tolist(), first, length, arrays, self._grid(arrays))

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


def load(model_dir: Path, image_token: int) -> None:
    """Prepare this process.

    Args:
        image_token: as of `ImageProcessor`

    Raises:
        Exception: whatever transformers raises for a processor that it cannot load.
    """
    global _processor
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: the parent drains first
    if sys.platform == "linux":
        # Large images take the cores that the engine leaves idle. A high niceness does not suffice:
        # an engine's thread that wakes would still wait for the end of the other's slice.
        with suppress(PermissionError):  # of a sandbox, in which streams are slower then
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _processor = ImageProcessor(make_processor(model_dir), image_token)


def known() -> tuple[Place, ImageRule | None]:
    """Runs in a process once `load` has: what its parent needs to know of the processor."""
    assert _processor is not None
    return _processor.place, _processor.rule


def read_and_process(
    source: str | bytes, max_bytes: int, max_pixels: int, small: bool
) -> Processed:
    """
    Args:
        source: a `data:` URL, or the bytes of a file
        small: as of `ImageProcessor.process`

    Raises:
        ImageError: it is not an image, or too large.
    """
    data = data_of(source) if isinstance(source, str) else source
    if len(data) > max_bytes:
        raise ImageError(f"has {len(data)} bytes; this worker accepts {max_bytes}")
    assert _processor is not None
    return _processor.process(decode(data, max_pixels), small=small)


_processor: ImageProcessor | None = None  # of this process


def _array(values: Any) -> Array:
    array = np.asarray(values)
    if np.issubdtype(array.dtype, np.floating):
        return np.ascontiguousarray(array, dtype=np.float32)
    if np.issubdtype(array.dtype, np.integer):
        return np.ascontiguousarray(array, dtype=np.int64)
    return np.ascontiguousarray(array, dtype=np.bool_)


def _digest(arrays: dict[str, Array]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(array.data)
    return digest.digest()
