"""`ImageEmbeddings`: what the vision tower has made of images, while the scheduler wants it."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pando_worker.batch import ImageTokens
from pando_worker.models.layers.causal_lm import Inserted
from pando_worker.tensors.transfer import to_device

if TYPE_CHECKING:  # transformers takes most of a second to import, and text needs none of it
    from pando_worker.models.transformers_backend.tower import VisionTower


class ImageEmbeddings:
    def __init__(self, tower: "VisionTower") -> None:
        self._tower = tower
        self._kept: dict[bytes, Tensor] = {}  # by digest, as the tower makes them

    def of(self, images: ImageTokens) -> Inserted:
        """Encode and drop what a step says; returns the embeddings of its image tokens."""
        for digest in images.drop:
            del self._kept[digest]
        found = self._tower.encode(images.encode)
        for image, embeddings in zip(images.encode, found, strict=True):
            self._kept[image.digest] = embeddings
        rows = torch.cat([self._kept[part.digest][part.first : part.end] for part in images.rows])
        first, *deeper = torch.split(rows, self._tower.hidden_size, dim=-1)
        return Inserted(to_device(images.tokens, rows.device), first, tuple(deeper))
