"""`RowProcessor`: the processor of Pixtral and Mistral Small 3, with a mark behind each row."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image


class RowProcessor:
    """Has what is used here of transformers' processors. Its own class for these models imports
    torchvision."""

    def __init__(self, model_dir: Path, image_processor: Any) -> None:
        from transformers import AutoTokenizer

        self.image_processor = image_processor
        self.tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
        file = model_dir / "processor_config.json"
        fields: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
        self.image_token: str = fields.get("image_token", "[IMG]")
        self._break: str = fields.get("image_break_token", "[IMG_BREAK]")
        self._end: str = fields.get("image_end_token", "[IMG_END]")
        self.patch_size: int = fields.get("patch_size", 16)
        self.spatial_merge_size: int = fields.get("spatial_merge_size", 1)
        self._side = self.patch_size * self.spatial_merge_size  # of a token, in pixels

    def __call__(
        self, *, images: Sequence[Image.Image] | None, text: Sequence[str], **options: Any
    ) -> dict[str, Any]:
        """
        Args:
            text: one, with a token in the place of each image; it gets one for each square of
                pixels, and marks
            options: of the tokenizer, among them `return_tensors`
        """
        (prompt,) = text
        found: dict[str, Any] = {}
        if images:
            found = dict(
                self.image_processor(
                    images=list(images),
                    patch_size=self._side,
                    return_tensors=options.get("return_tensors", "np"),
                )
            )
            first, *rest = prompt.split(self.image_token)
            rows = (self._rows(*map(int, size)) for size in found["image_sizes"])
            prompt = first + "".join(row + part for row, part in zip(rows, rest, strict=True))
        return {**self.tokenizer([prompt], **options), **found}

    def _rows(self, height: int, width: int) -> str:
        rows, columns = height // self._side, width // self._side
        if rows * columns == 1:  # transformers' tower takes its embedding for many
            raise ValueError(f"it has no more than {self._side} x {self._side} pixels")
        return self._break.join([self.image_token * columns] * rows) + self._end
