"""`PatchProcessor`: the processor of models that see images at their own size, in rows of patches.

These are Qwen2-VL and its successors. Transformers' own class for them also has a part for videos,
which imports torchvision; its part for images needs Pillow and numpy only.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_IMAGE_TOKEN = "<|image_pad|>"  # unless the tokenizer has another


class PatchProcessor:
    """Has what is used here of transformers' processors."""

    def __init__(self, model_dir: Path, image_processor: Any) -> None:
        from transformers import AutoTokenizer

        self.image_processor = image_processor
        self.tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
        self.image_token: str = getattr(self.tokenizer, "image_token", _IMAGE_TOKEN)
        self.image_token_id: int = self.tokenizer.convert_tokens_to_ids(self.image_token)

    def __call__(
        self,
        *,
        images: Sequence[Image.Image],
        text: Sequence[str],
        most_pixels: int | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """What transformers' processors return, but each patch has its pixels once.

        Args:
            most_pixels: of an image, if its processor would allow more
            text: one, with a token in the place of each image; it gets one for each square of
                patches, which the tower merges
            options: of the tokenizer
        """
        (prompt,) = text
        found = {}
        if images:
            size = self._size(most_pixels)
            found = dict(self.image_processor(images=list(images), return_tensors="np", size=size))
            found["pixel_values"] = self._once(found["pixel_values"])
            first, *rest = prompt.split(self.image_token)
            patches = [int(np.prod(grid.tolist())) for grid in found["image_grid_thw"]]
            square = self.image_processor.merge_size**2
            parts = zip(patches, rest, strict=True)
            prompt = first + "".join(self.image_token * (n // square) + part for n, part in parts)
        return {**self.tokenizer([prompt], **options), **found}

    def _once(self, patches: NDArray[Any]) -> NDArray[Any]:
        """For these models an image is a video whose frames are all the same. The first of them:
        [patches, 3 * temporal_patch_size * patch_size ** 2] to [patches, 3 * patch_size ** 2]."""
        frames = patches.reshape(len(patches), 3, self.image_processor.temporal_patch_size, -1)
        return frames[:, :, 0].reshape(len(patches), -1)

    def _size(self, most_pixels: int | None) -> dict[str, int]:
        """The bounds of an image's pixels, by the names of transformers."""
        size = self.image_processor.size
        bounds = {"shortest_edge": size["shortest_edge"], "longest_edge": size["longest_edge"]}
        if most_pixels is None:
            return bounds
        return {name: min(bound, most_pixels) for name, bound in bounds.items()}
