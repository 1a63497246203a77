"""`ImageEmbeddings`: what the vision tower has made of images, while the scheduler wants it.

An exception inside the tower concerns the images of its batch alone: their embeddings are zeros,
the step runs, and the scheduler ends the requests that have them (`failed`).
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pando_worker.batch import ImageTokens, PixelValues
from pando_worker.models.layers.causal_lm import Inserted
from pando_worker.models.parallel import ParallelGroup
from pando_worker.tensors.transfer import to_device

if TYPE_CHECKING:  # transformers takes most of a second to import, and text needs none of it
    from pando_worker.models.transformers_backend.tower import VisionTower

log = logging.getLogger("pando.worker.runner")


class ImageEmbeddings:
    def __init__(self, tower: "VisionTower", group: ParallelGroup) -> None:
        """
        Args:
            group: each rank has the whole tower
        """
        self._tower, self._group = tower, group
        # By digest, as the tower makes them; None for those that it failed to make.
        self._kept: dict[bytes, Tensor | None] = {}

    def of(self, images: ImageTokens) -> Inserted:
        """Encode and drop what a step says; returns the embeddings of its image tokens."""
        for digest in images.drop:
            del self._kept[digest]
        self._encode(images.encode)
        parts = []
        for part in images.rows:
            kept = self._kept[part.digest]
            length = part.end - part.first
            parts.append(self._tower.blank(length) if kept is None else kept[part.first : part.end])
        rows = torch.cat(parts)
        first, *deeper = torch.split(rows, self._tower.hidden_size, dim=-1)
        return Inserted(to_device(images.tokens, rows.device), first, tuple(deeper))

    def failed(self, images: ImageTokens) -> frozenset[bytes]:
        """Digests of a step's images, after `of`, that have no embeddings."""
        return frozenset(part.digest for part in images.rows if self._kept[part.digest] is None)

    def _encode(self, images: Sequence[PixelValues]) -> None:
        if not images:
            return
        from pando_worker.models.transformers_backend.tower import alike

        for batch in alike(images):
            found: Sequence[Tensor | None]
            try:
                found = self._tower.encode(batch)
            except Exception:  # any failure concerns these images only
                log.exception("the vision tower failed on %d images", len(batch))
                found = [None] * len(batch)
            self._kept |= zip([image.digest for image in batch], found, strict=True)
        if self._group.size > 1:
            self._agree([image.digest for image in images])

    def _agree(self, digests: Sequence[bytes]) -> None:
        """One rank may fail alone, for lack of memory: then the image fails on all."""
        failed = torch.tensor(
            [self._kept[digest] is None for digest in digests],
            dtype=torch.float32,
            device=self._tower.device,
        )
        for digest, count in zip(digests, self._group.all_reduce(failed).tolist(), strict=True):
            if count:
                self._kept[digest] = None
