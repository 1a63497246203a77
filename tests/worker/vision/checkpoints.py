"""Tiny models that see, with random weights, as transformers runs them: the tests' truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import (
    AutoProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from tests.worker.server.text.tokenizers_for_tests import SPECIAL, byte_level

IMAGE = "<image>"

# As LLaVA 1.5's: it reads lists of parts alone.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{{ ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def save_llava(path: Path, *, image_size: int = 28, patch_size: int = 7, seed: int = 0) -> Path:
    """A LLaVA 1.5 with (image_size / patch_size)² tokens an image."""
    tokenizer = byte_level()
    tokenizer.add_special_tokens([IMAGE])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.chat_template = CHAT_TEMPLATE
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": image_size}, crop_size=image_size),
        fast,
        patch_size=patch_size,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            image_size=image_size,
            patch_size=patch_size,
            projection_dim=16,
        ),
        text_config=LlamaConfig(
            vocab_size=len(fast),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
        ),
        image_token_index=processor.image_token_id,
    )
    torch.manual_seed(seed)
    model = LlavaForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases start as zeros and norms as ones: make all of them count.
            offset = 1.0 if (parameter == 1).all() else 0.0
            parameter.normal_(std=0.3).add_(offset)
        # No output has the image token, which transformers would take for a place of an image, nor
        # one that ends it.
        model.lm_head.weight[[processor.image_token_id, *range(len(SPECIAL))]] = 0
    model.save_pretrained(path)
    fast.save_pretrained(path)
    processor.save_pretrained(path)
    return path


@dataclass(frozen=True)
class Seer:
    """A model that sees, as transformers runs it."""

    path: Path

    @cached_property
    def model(self) -> Any:
        return LlavaForConditionalGeneration.from_pretrained(self.path, dtype=torch.float32).eval()

    @cached_property
    def processor(self) -> Any:
        return AutoProcessor.from_pretrained(self.path)

    def logits(
        self, text: str, images: Sequence[Image.Image], output: Sequence[int] = ()
    ) -> Tensor:
        """After each token of a prompt and what follows it, [num_tokens, vocab_size].

        Args:
            text: with `<image>` in the place of each image
        """
        inputs = self.processor(
            text=[text], images=list(images) or None, add_special_tokens=False, return_tensors="pt"
        )
        ids = torch.cat((inputs.pop("input_ids"), torch.tensor([list(output)]).long()), dim=1)
        inputs.pop("attention_mask")
        with torch.inference_mode():
            found: Tensor = self.model(input_ids=ids, use_cache=False, **inputs).logits[0]
        return found

    def greedy(self, text: str, images: Sequence[Image.Image], count: int) -> list[int]:
        output: list[int] = []
        while len(output) < count:
            output.append(int(self.logits(text, images, output)[-1].argmax()))
        return output
