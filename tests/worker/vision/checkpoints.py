"""Tiny models that see, with random weights, as transformers runs them: the tests' truth."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import AutoModelForImageTextToText

from pando_worker.models.config import read_config
from pando_worker.vision.processing import ImageProcessor
from pando_worker.vision.processors import make_processor

IMAGE = "<image>"
"""Stands for an image in the tests' texts, whatever a model's own mark is."""


@dataclass(frozen=True)
class Seer:
    """A model that sees, as transformers runs it."""

    path: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of its processor, for every image

    @cached_property
    def model(self) -> Any:
        return AutoModelForImageTextToText.from_pretrained(self.path, dtype=torch.float32).eval()

    @cached_property
    def processor(self) -> Any:
        return make_processor(self.path)

    @cached_property
    def image_token(self) -> int:
        """The token whose embeddings are an image's."""
        return int(self.model.config.image_token_id)

    @cached_property
    def ours(self) -> ImageProcessor:
        token = read_config(self.path).image_token
        assert token == self.image_token
        return ImageProcessor(make_processor(self.path), token)

    def inputs(self, text: str, images: Sequence[Image.Image]) -> Any:
        """What the processor of transformers makes of a prompt.

        Args:
            text: with `IMAGE` in the place of each image
        """
        return self.processor(
            text=[text.replace(IMAGE, self.processor.image_token)],
            images=list(images) or None,
            add_special_tokens=False,
            return_tensors="pt",
            **self.arguments,
        )

    def logits(
        self, text: str, images: Sequence[Image.Image], output: Sequence[int] = ()
    ) -> Tensor:
        """After each token of a prompt and what follows it, [num_tokens, vocab_size].

        Args:
            text: as of `inputs`
        """
        return self.logits_of(self.inputs(text, images), output)

    def logits_of(self, inputs: Mapping[str, Any], output: Sequence[int]) -> Tensor:
        """As `logits`, of what `inputs` made of the prompt."""
        ids = torch.cat((inputs["input_ids"], torch.tensor([list(output)]).long()), dim=1)
        arrays = {
            name: array
            for name, array in inputs.items()
            if name not in ("input_ids", "attention_mask")
        }
        if "token_type_ids" in arrays:
            is_image = (ids == self.image_token).long()
            assert torch.equal(
                is_image[:, : arrays["token_type_ids"].shape[1]], arrays["token_type_ids"]
            )
            arrays["token_type_ids"] = is_image
        with torch.inference_mode():
            found: Tensor = self.model(input_ids=ids, use_cache=False, **arrays).logits[0]
        return found

    def hidden(self, text: str, images: Sequence[Image.Image]) -> Tensor:
        """Final hidden states of a prompt, [num_tokens, hidden_size]."""
        return self.hidden_of(lambda: self.logits(text, images))

    def hidden_of(self, run: Callable[[], Tensor]) -> Tensor:
        """Those of a call that computes logits."""
        found: list[Tensor] = []
        hook = self.model.lm_head.register_forward_pre_hook(lambda _, given: found.append(given[0]))
        run()
        hook.remove()
        return found[0][0]

    def greedy(self, text: str, images: Sequence[Image.Image], count: int) -> list[int]:
        inputs = self.inputs(text, images)
        output: list[int] = []
        while len(output) < count:
            output.append(int(self.logits_of(inputs, output)[-1].argmax()))
        return output
