"""Tiny models that see, with random weights, as transformers runs them: the tests' truth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3Processor,
    Gemma3TextConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    SiglipVisionConfig,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from pando_worker.models.config import read_config
from pando_worker.vision.processing import ImageProcessor, make_processor
from tests.worker.server.text.tokenizers_for_tests import SPECIAL, byte_level

IMAGE = "<image>"
"""Stands for an image in the tests' texts, whatever a model's own mark is."""

# As LLaVA 1.5's: it reads lists of parts alone.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{{ ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)

_CLIP = CLIPVisionConfig(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=2,
    image_size=28,
    patch_size=7,
    projection_dim=16,
)
_DECODER: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}


def save_llava(path: Path) -> Path:
    """LLaVA 1.5, with 16 tokens an image."""
    tokenizer = _tokenizer(IMAGE)
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=28),
        tokenizer,
        patch_size=7,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )
    config = LlavaConfig(
        vision_config=_CLIP,
        text_config=LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=2, **_DECODER),
        image_token_index=processor.image_token_id,
    )
    return _save(path, LlavaForConditionalGeneration(config), processor)


def save_gemma3(path: Path) -> Path:
    """Gemma 3, with 16 tokens an image, which see each other: in some layers through a window that
    is shorter. New lines beside an image become one token with those of the text, as in Gemma's
    vocabulary."""
    marks = {"boi_token": "<boi>", "image_token": "<soft>", "eoi_token": "<eoi>"}
    tokenizer = _tokenizer(*marks.values(), words=["\n\n", "\n\n\n", "\n\n\n\n"], marks=marks)
    processor = Gemma3Processor(
        Gemma3ImageProcessorPil(size={"height": 56, "width": 56}, do_pan_and_scan=False),
        tokenizer,
        image_seq_length=16,
        chat_template=CHAT_TEMPLATE.replace(IMAGE, "<boi>"),
    )
    config = Gemma3Config(
        vision_config=SiglipVisionConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=56,
            patch_size=7,
        ),
        text_config=Gemma3TextConfig(
            vocab_size=len(tokenizer),
            num_hidden_layers=3,
            head_dim=8,
            query_pre_attn_scalar=8,
            sliding_window=10,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            **_DECODER,
        ),
        mm_tokens_per_image=16,
        image_token_index=tokenizer.convert_tokens_to_ids("<soft>"),
        boi_token_index=tokenizer.convert_tokens_to_ids("<boi>"),
        eoi_token_index=tokenizer.convert_tokens_to_ids("<eoi>"),
    )
    return _save(path, Gemma3ForConditionalGeneration(config), processor)


FAMILIES: dict[str, Callable[[Path], Path]] = {"llava": save_llava, "gemma3": save_gemma3}


def _tokenizer(
    *special: str, words: Sequence[str] = (), marks: dict[str, str] | None = None
) -> PreTrainedTokenizerFast:
    """
    Args:
        words: that are one token each, wherever they stand
        marks: attributes of the tokenizer, with the tokens that they name
    """
    tokenizer = byte_level()
    tokenizer.add_tokens(list(words))
    tokenizer.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens=marks or {},
    )


def _save(path: Path, model: Any, processor: Any) -> Path:
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases start as zeros and norms as ones: make all of them count.
            offset = 1.0 if (parameter == 1).all() else 0.0
            parameter.normal_(std=0.3, generator=random).add_(offset)
        # No output has the image token, which transformers would take for a place of an image, nor
        # one that ends it.
        model.lm_head.weight[[model.config.image_token_id, *range(len(SPECIAL))]] = 0
    model.save_pretrained(path)
    processor.tokenizer.chat_template = processor.chat_template
    processor.tokenizer.save_pretrained(path)
    processor.save_pretrained(path)
    return path


@dataclass(frozen=True)
class Seer:
    """A model that sees, as transformers runs it."""

    path: Path

    @cached_property
    def model(self) -> Any:
        return AutoModelForImageTextToText.from_pretrained(self.path, dtype=torch.float32).eval()

    @cached_property
    def processor(self) -> Any:
        return AutoProcessor.from_pretrained(self.path)

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
        )

    def logits(
        self, text: str, images: Sequence[Image.Image], output: Sequence[int] = ()
    ) -> Tensor:
        """After each token of a prompt and what follows it, [num_tokens, vocab_size].

        Args:
            text: as of `inputs`
        """
        inputs = self.inputs(text, images)
        ids = torch.cat((inputs.pop("input_ids"), torch.tensor([list(output)]).long()), dim=1)
        inputs.pop("attention_mask")
        if "token_type_ids" in inputs:
            is_image = (ids == self.image_token).long()
            assert torch.equal(
                is_image[:, : inputs["token_type_ids"].shape[1]], inputs["token_type_ids"]
            )
            inputs["token_type_ids"] = is_image
        with torch.inference_mode():
            found: Tensor = self.model(input_ids=ids, use_cache=False, **inputs).logits[0]
        return found

    def greedy(self, text: str, images: Sequence[Image.Image], count: int) -> list[int]:
        output: list[int] = []
        while len(output) < count:
            output.append(int(self.logits(text, images, output)[-1].argmax()))
        return output
