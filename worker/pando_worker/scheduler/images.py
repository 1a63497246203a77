"""`Images`: which images the vision tower encodes in a step, and whose embeddings are kept.

An image is encoded in the step that runs the first of its tokens that is not cached, so what the
radix cache holds is never encoded. Its embeddings are kept for the rest of its tokens, which later
chunks may run, and for equal images of other requests. If they were dropped meanwhile, the image is
encoded again: that costs time and changes nothing.

The tower has a budget of its own in each step, so that it delays streams by little: a prompt whose
next image is beyond it runs up to that image.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pando_worker.batch import EmbeddingRows, ForwardBatch, ImageTokens, Int32, Int64, PixelValues
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

    @property
    def tokens(self) -> Int64:
        """Those with embeddings, in the prompt."""
        return self.span.embeddings_in(self.start, self.end)[1]


class Images:
    def __init__(
        self, *, page_size: int, kept_tokens: int, tokens_per_step: int, are_whole: bool = False
    ) -> None:
        """
        Args:
            page_size: the least that a prompt which is cut runs in a step
            kept_tokens: whose embeddings are kept between steps, those used last
            tokens_per_step: of images that are encoded in a step; but one image always is
            are_whole: whether an image's tokens see each other, so that one step runs them all
        """
        self.are_whole = are_whole
        self._page_size = page_size
        self._kept_tokens = kept_tokens
        self._budget = tokens_per_step
        self._kept: dict[bytes, int] = {}  # digest: tokens, the longest unused first
        self._planned: dict[bytes, int] = {}  # to be encoded in the step that is planned
        self._failed: list[bytes] = []  # still to be dropped
        self.encoded_total = 0

    def begin(self) -> None:
        """Begin to plan a step."""
        self._planned.clear()

    def least(self, req: Req) -> int:
        """The fewest of its next tokens that a step can run of a request."""
        return self._next_cut(req) - req.cached_len

    def limit(self, req: Req, count: int, most: int) -> int:
        """How many of a request's next tokens the step can run; of the first request with images to
        encode at least `least`, whatever is in it. 0: it waits for another step.

        Args:
            count: how many there is room for
            most: up to how many there may be, if an image that may not be cut is longer than
                `count`
        """
        start, least = req.cached_len, self._next_cut(req)
        end = self._last_cut(req, start + count)
        if end <= start:
            if least > start + most:
                return 0
            end = least
        must_run = start if self._planned else least
        for needed in _needed(req, start, end):
            span = needed.span
            if span.digest in self._kept or span.digest in self._planned:
                continue
            excess = sum(self._planned.values()) + span.embeddings - self._budget
            if excess > 0 and needed.start >= must_run and self._planned:
                return max(start, self._last_cut(req, needed.start)) - start
            self._planned[span.digest] = span.embeddings
        return end - start

    def _last_cut(self, req: Req, end: int) -> int:
        """The last of a prompt's places up to `end` at which a step may end."""
        if end >= req.num_tokens:
            return end
        page = end // self._page_size * self._page_size
        edges = (edge for i in req.images if i.is_whole for edge in (i.start, i.end))
        cuts = [edge for edge in edges if edge <= end]
        if req.image_around(page) is None:
            cuts.append(page)
        return max(cuts)

    def _next_cut(self, req: Req) -> int:
        """The first of its places, behind its cached tokens, at which a step may end."""
        end = (req.cached_len // self._page_size + 1) * self._page_size
        if image := req.image_around(end):
            end = image.start if image.start > req.cached_len else image.end
        return min(end, req.num_tokens)

    def tokens_of(self, rows: Sequence[Row], first: int, batch: ForwardBatch) -> ImageTokens | None:
        """The image tokens of a step that is launched now.

        Args:
            rows: the last rows of `batch`
            first: the index of their first token in it
        """
        seen = _up_to_each(batch) if self.are_whole else None
        encode: dict[bytes, ImageSpan] = {}
        used: dict[bytes, int] = {}
        tokens: list[NDArray[np.int64]] = []
        parts: list[EmbeddingRows] = []
        for row in rows:
            for needed in _needed(row.req, row.start, row.end):
                span = needed.span
                if span.digest not in self._kept:
                    encode[span.digest] = span
                used[span.digest] = span.embeddings
                offset = first - row.start
                begin, where = span.embeddings_in(needed.start, needed.end)
                tokens.append(where + offset)
                parts.append(EmbeddingRows(span.digest, begin, begin + len(where)))
                if seen is not None:
                    assert (needed.start, needed.end) == (span.start, span.end)
                    seen[needed.start + offset : needed.end + offset] = span.end
            first += row.extend_len
        if not parts:
            return None
        self.encoded_total += len(encode)
        failed, self._failed = self._failed, []
        return ImageTokens(
            drop=[*failed, *self._keep(used)],
            encode=[
                PixelValues(span.digest, span.embeddings, span.arrays) for span in encode.values()
            ],
            tokens=np.concatenate(tokens),
            rows=parts,
            seen=seen,
        )

    def failed(self, digests: Iterable[bytes]) -> None:
        """The tower could not encode these images. A request that brings one again tries again."""
        for digest in digests:
            if self._kept.pop(digest, None) is not None:
                self._failed.append(digest)

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


def read_images(
    images: Iterable[PromptImage], ids: NDArray[np.int32], are_whole: bool
) -> tuple[ImageSpan, ...]:
    """The images of a prompt, whose tokens in `ids` get the ids by which the cache knows them.

    Args:
        are_whole: as of `Images`
    """
    spans = []
    for image in images:
        own = ids[image.start : image.start + image.length]
        token = int(own[0])
        places = np.flatnonzero(own == token)
        own[places] = image_ids(image.digest, len(places))
        arrays = {
            name: np.frombuffer(array.data.buffer, dtype=array.dtype).reshape(array.shape)
            for name, array in image.arrays.items()
        }
        spans.append(
            ImageSpan(
                digest=image.digest,
                start=image.start,
                length=image.length,
                token=token,
                arrays=arrays,
                grid=image.grid,
                time=image.time,
                is_continued=image.is_continued,
                is_whole=are_whole,
                places=places if len(places) < image.length else None,
            )
        )
    return tuple(spans)


def _up_to_each(batch: ForwardBatch) -> Int32:
    """For each token of the batch, how many of its row there are up to itself."""
    behind = np.cumsum(batch.extend_lens) - batch.seq_lens
    places = np.arange(len(batch.input_ids)) - np.repeat(behind, batch.extend_lens)
    return (places + 1).astype(np.int32)


def runs_any(row: Row, digests: Set[bytes]) -> bool:
    """Whether a row runs tokens of one of these images."""
    return bool(digests) and any(
        part.span.digest in digests for part in _needed(row.req, row.start, row.end)
    )


def _needed(req: Req, start: int, end: int) -> list[_Needed]:
    """The images whose embeddings a request's tokens from `start` to before `end` have, each with
    the part there."""
    return [
        part
        for span in req.images
        if span.start < end and start < span.end
        if len((part := _Needed(span, max(span.start, start), min(span.end, end))).tokens)
    ]
