"""`Images`: which images the vision tower encodes in a step, and whose embeddings are kept.

An image is encoded in the step that runs the first of its tokens that is not cached, so what the
radix cache holds is never encoded. Its embeddings are kept for the rest of its tokens, which later
chunks may run, and for equal images of other requests. If they were dropped meanwhile, the image is
encoded again: that costs time and changes nothing.

The tower has a budget of its own in each step, so that it delays streams by little: a prompt whose
next image is beyond it runs up to that image.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pando_worker.batch import EmbeddingRows, ImageTokens, PixelValues
from pando_worker.memory.image_ids import image_ids
from pando_worker.messages import PromptImage
from pando_worker.scheduler.batches.batching import Row
from pando_worker.scheduler.req import ImageSpan, Req


@dataclass(frozen=True, slots=True)
class _Needed:
    """A part of an image that a row runs."""

    span: ImageSpan
    start: int  # in the prompt
    end: int


class Images:
    def __init__(self, *, page_size: int, kept_tokens: int, tokens_per_step: int) -> None:
        """
        Args:
            page_size: the least that a prompt which is cut runs in a step
            kept_tokens: whose embeddings are kept between steps, those used last
            tokens_per_step: of images that are encoded in a step; but one image always is
        """
        self._page_size = page_size
        self._kept_tokens = kept_tokens
        self._budget = tokens_per_step
        self._kept: dict[bytes, int] = {}  # digest: tokens, the longest unused first
        self._planned: dict[bytes, int] = {}  # to be encoded in the step that is planned
        self.encoded_total = 0

    def begin(self) -> None:
        """Begin to plan a step."""
        self._planned.clear()

    def limit(self, req: Req, count: int) -> int:
        """How many of a request's next `count` tokens the step can run; of the first request with
        images to encode at least a page, whatever is in it."""
        must_run = req.cached_len + (0 if self._planned else self._page_size)
        for needed in _needed(req, req.cached_len, req.cached_len + count):
            span = needed.span
            if span.digest in self._kept or span.digest in self._planned:
                continue
            excess = sum(self._planned.values()) + span.length - self._budget
            if excess > 0 and needed.start >= must_run and self._planned:
                return needed.start - req.cached_len
            self._planned[span.digest] = span.length
        return count

    def tokens_of(self, rows: Sequence[Row], first: int) -> ImageTokens | None:
        """The image tokens of a step that is launched now.

        Args:
            rows: the last rows of its batch
            first: the index of their first token in the batch
        """
        encode: dict[bytes, ImageSpan] = {}
        used: dict[bytes, int] = {}
        tokens: list[NDArray[np.int64]] = []
        parts: list[EmbeddingRows] = []
        for row in rows:
            for needed in _needed(row.req, row.start, row.end):
                span = needed.span
                if span.digest not in self._kept:
                    encode[span.digest] = span
                used[span.digest] = span.length
                offset = first - row.start
                tokens.append(np.arange(needed.start + offset, needed.end + offset))
                part = needed.start - span.start, needed.end - span.start
                parts.append(EmbeddingRows(span.digest, *part))
            first += row.extend_len
        if not parts:
            return None
        self.encoded_total += len(encode)
        return ImageTokens(
            drop=self._keep(used),
            encode=[PixelValues(span.digest, span.length, span.arrays) for span in encode.values()],
            tokens=np.concatenate(tokens),
            rows=parts,
        )

    def _keep(self, used: dict[bytes, int]) -> list[bytes]:
        """Keep the embeddings that a step uses; returns those dropped for them. A step's own are
        kept even if they alone are too many."""
        for digest in used:
            self._kept.pop(digest, None)
        excess = sum(self._kept.values()) + sum(used.values()) - self._kept_tokens
        dropped: list[bytes] = []
        for digest, length in self._kept.items():
            if excess <= 0:
                break
            dropped.append(digest)
            excess -= length
        for digest in dropped:
            del self._kept[digest]
        self._kept |= used
        return dropped


def read_images(images: Iterable[PromptImage], ids: NDArray[np.int32]) -> tuple[ImageSpan, ...]:
    """The images of a prompt, whose tokens in `ids` get the ids by which the cache knows them."""
    spans = []
    for image in images:
        token = int(ids[image.start])
        ids[image.start : image.start + image.length] = image_ids(image.digest, image.length)
        arrays = {
            name: np.frombuffer(array.data, dtype=array.dtype).reshape(array.shape)
            for name, array in image.arrays.items()
        }
        place = image.start, image.length
        spans.append(ImageSpan(image.digest, *place, token, arrays, image.grid))
    return tuple(spans)


def _needed(req: Req, start: int, end: int) -> list[_Needed]:
    """The images of a request's tokens from `start` to before `end`, each with the part there."""
    return [
        _Needed(span, max(span.start, start), min(span.end, end))
        for span in req.images
        if span.start < end and start < span.end
    ]
