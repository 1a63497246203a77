"""An image to pixel values and prompt tokens, by the model's processor in transformers.

Importing transformers' image processors imports torch, which the HTTP process does without; and a
decoder that crashes on a malicious file must not take the streams of others with it. So this runs
in processes of their own, each of which loads the processor once (`load`).
"""

import ctypes
import hashlib
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pando_worker.vision.decoding import data_of, decode
from pando_worker.vision.errors import ImageError
from pando_worker.vision.patches import PatchProcessor

Array = NDArray[np.float32] | NDArray[np.int64] | NDArray[np.bool_]

LOW = 512 * 512
"""Pixels of an image with `detail` low, as in OpenAI's API."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_OF_TEXT = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
_GRIDS = "image_grid_thw"
_processor: Any = None  # of this process


@dataclass(frozen=True, slots=True)
class Processed:
    """An image as the model takes it.

    Attributes:
        digest: 16 bytes, of the arrays: equal for equal images, however they were sent
        token_ids: what stands for the image in the prompt
        first, length: which of these are replaced by the embeddings of the vision tower
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


def load(model_dir: Path) -> None:
    """Prepare this process.

    Raises:
        Exception: whatever transformers raises for a processor that it cannot load.
    """
    global _processor
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: the parent drains first
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _processor = make_processor(model_dir)


def make_processor(model_dir: Path) -> Any:
    """The model's processor, computing with Pillow and numpy: torchvision resizes differently."""
    from transformers import AutoImageProcessor, AutoProcessor
    from transformers.utils import logging

    logging.set_verbosity_error()
    images = AutoImageProcessor.from_pretrained(model_dir, backend="pil", local_files_only=True)
    if _GRIDS in images.model_input_names:
        return PatchProcessor(model_dir, images)
    processor = AutoProcessor.from_pretrained(model_dir, local_files_only=True)
    processor.image_processor = images
    return processor


def is_loaded() -> None:
    """Runs in a process once `load` has; what the parent waits for."""


def read_and_process(
    source: str | bytes, max_bytes: int, max_pixels: int, small: bool
) -> Processed:
    """
    Args:
        source: a `data:` URL, or the bytes of a file
        small: as of `processed`

    Raises:
        ImageError: it is not an image, or too large.
    """
    data = data_of(source) if isinstance(source, str) else source
    if len(data) > max_bytes:
        raise ImageError(f"has {len(data)} bytes; this worker accepts {max_bytes}")
    return processed(_processor, decode(data, max_pixels), small=small)


def processed(processor: Any, image: Image.Image, *, small: bool = False) -> Processed:
    """
    Args:
        small: whether an image beyond `LOW` pixels shall become smaller, in models that see it at
            its own size

    Raises:
        ImageError: the processor refuses it, for instance because it is too narrow.
    """
    options = {"most_pixels": LOW} if small and isinstance(processor, PatchProcessor) else {}
    try:
        found = processor(
            images=[image],
            text=[processor.image_token],
            add_special_tokens=False,
            return_tensors="np",
            **options,
        )
    except ValueError as error:
        raise ImageError(f"cannot be used: {error}") from error
    ids = found["input_ids"][0]
    places = np.flatnonzero(ids == processor.image_token_id)
    first, length = int(places[0]), len(places)
    assert places[-1] - first == length - 1, "an image's tokens stand side by side"
    arrays = {name: _array(found[name]) for name in sorted(found) if name not in _OF_TEXT}
    grid = _grid(arrays, processor)
    return Processed(_digest(arrays), ids.tolist(), first, length, arrays, grid)


def _grid(arrays: dict[str, Array], processor: Any) -> tuple[int, int, int] | None:
    if _GRIDS not in arrays:
        return None
    frames, rows, columns = arrays[_GRIDS][0].tolist()  # of patches
    merged = processor.image_processor.merge_size
    return frames, rows // merged, columns // merged


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
