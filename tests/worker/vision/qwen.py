"""Tiny models of Qwen's families that see, with random weights, as transformers runs them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from pando_worker.vision.processors import make_processor
from tests.worker.server.text.tokenizers_for_tests import SPECIAL, byte_level
from tests.worker.vision.checkpoints import Seer

IMAGE = "<|image_pad|>"
VIDEO = "<|video_pad|>"
PATCH, MERGED = 4, 2
MOST_TOKENS = 26  # of an image

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image_url' in part %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    # Few turns between neighbours would hide wrong positions.
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 100.0,
        "mrope_section": [2, 3, 3],
    },
}
_VISION = {
    "depth": 3,
    "num_heads": 2,
    "patch_size": PATCH,
    "spatial_merge_size": MERGED,
    "temporal_patch_size": 2,
}


def _qwen2(text: dict[str, Any], **fields: Any) -> Any:
    vision = _VISION | {"embed_dim": 32, "mlp_ratio": 2, "hidden_size": text["hidden_size"]}
    config = Qwen2VLConfig(text_config=text, vision_config=vision, **fields)
    return Qwen2VLForConditionalGeneration(config)


def _windows(text: dict[str, Any], **fields: Any) -> Any:
    """Its second layer has a window that is shorter than an image."""
    windows = {"use_sliding_window": True, "sliding_window": 14, "max_window_layers": 1}
    return _qwen2(text | windows, **fields)


def _qwen2_5(text: dict[str, Any], **fields: Any) -> Any:
    vision = _VISION | {
        "hidden_size": 32,
        "intermediate_size": 48,
        "out_hidden_size": text["hidden_size"],
        "window_size": 2 * PATCH * MERGED,
        "fullatt_block_indexes": [1],
    }
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **fields)
    return Qwen2_5_VLForConditionalGeneration(config)


def _qwen3(text: dict[str, Any], **fields: Any) -> Any:
    config = Qwen3VLConfig(**_qwen3_parts(text), **fields)
    return Qwen3VLForConditionalGeneration(config)


def _qwen3_moe(text: dict[str, Any], **fields: Any) -> Any:
    text = text | {"moe_intermediate_size": 24, "num_experts": 5, "num_experts_per_tok": 2}
    config = Qwen3VLMoeConfig(**_qwen3_parts(text), **fields)
    return Qwen3VLMoeForConditionalGeneration(config)


def _qwen3_parts(text: dict[str, Any]) -> dict[str, Any]:
    """With features for the first two of three layers."""
    vision = _VISION | {
        "hidden_size": 32,
        "intermediate_size": 48,
        "out_hidden_size": text["hidden_size"],
        "num_position_embeddings": 36,
        "deepstack_visual_indexes": [0, 1],
    }
    rope = text["rope_parameters"] | {"mrope_section": [4, 2, 2], "mrope_interleaved": True}
    text = text | {"rope_parameters": rope, "num_hidden_layers": 3, "head_dim": 16}
    return {"text_config": text, "vision_config": vision}


FAMILIES: dict[str, Callable[..., Any]] = {
    "qwen2-vl": _qwen2,
    "qwen2-vl, windows": _windows,
    "qwen2.5-vl": _qwen2_5,
    "qwen3-vl": _qwen3,
    "qwen3-vl-moe": _qwen3_moe,
}


def save_qwen(path: Path, family: str, *, seed: int = 0, **text: Any) -> Path:
    """A model of the family with at most `MOST_TOKENS` tokens an image."""
    token = (PATCH * MERGED) ** 2  # pixels
    images = Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=MERGED,
        size={"shortest_edge": 4 * token, "longest_edge": MOST_TOKENS * token},
    )
    fast = save_processor(path, images)
    # Bounds of a picture, or of all pictures together.
    most = 160 if family.startswith("qwen3") else MOST_TOKENS
    size = {"shortest_edge": 4 * token, "longest_edge": most * token}
    videos = {"patch_size": PATCH, "merge_size": MERGED, "size": size}
    (path / "video_preprocessor_config.json").write_text(json.dumps(videos))
    image_token = fast.convert_tokens_to_ids(IMAGE)
    torch.manual_seed(seed)
    model = FAMILIES[family](
        {**_TEXT, "vocab_size": len(fast), **text},
        image_token_id=image_token,
        video_token_id=fast.convert_tokens_to_ids(VIDEO),
        tie_word_embeddings=text.get("tie_word_embeddings", False),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases start as zeros and norms as ones: make all of them count.
            offset = 1.0 if (parameter == 1).all() else 0.0
            parameter.normal_(std=0.25).add_(offset)
        # No output has the tokens of images and videos, or one that ends it.
        marks = [image_token, model.config.video_token_id]
        model.lm_head.weight[[*marks, *range(len(SPECIAL))]] = 0
    model.save_pretrained(path)
    _write_as_published(path / "model.safetensors")
    return path


def _write_as_published(file: Path) -> None:
    """Experts in their publisher's form, inputs before outputs. Transformers reads both forms, and
    writes the other one."""
    tensors = load_file(file)
    experts = {name: tensors[name].mT.contiguous() for name in tensors if ".experts." in name}
    save_file(tensors | experts, file, metadata={"format": "pt"})


def save_processor(path: Path, images: Any, **tokens: str) -> PreTrainedTokenizerFast:
    """An image processor, and a tokenizer, which is returned.

    Args:
        tokens: special ones by their names
    """
    fast = tokenizer_with(**tokens)
    fast.save_pretrained(path)
    images.save_pretrained(path)
    return fast


def tokenizer_with(**tokens: str) -> PreTrainedTokenizerFast:
    """Arguments as in `save_processor`."""
    tokenizer = byte_level()
    names = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", IMAGE, VIDEO]
    tokenizer.add_special_tokens([*names, *tokens.values()])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens=tokens,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


@dataclass(frozen=True)
class QwenSeer(Seer):
    """A model whose image tokens have positions in three dimensions."""

    @cached_property
    def processor(self) -> Any:
        return make_processor(self.path)

    def inputs(self, text: str, images: Sequence[Image.Image]) -> Any:
        """Token ids by the whole processor; pixels by that of images."""
        ids = super().inputs(text, images)["input_ids"]
        if not images:
            return {"input_ids": ids}
        return {
            "input_ids": ids,
            **self.processor.image_processor(images=list(images), return_tensors="pt"),
        }

    def logits_of(self, inputs: Mapping[str, Any], output: Sequence[int]) -> Tensor:
        ids = torch.cat((inputs["input_ids"], torch.tensor([list(output)]).long()), dim=1)
        arrays = {name: array for name, array in inputs.items() if name != "input_ids"}
        if arrays:
            arrays["mm_token_type_ids"] = (ids == self.processor.image_token_id).int()
        with torch.inference_mode():
            found: Tensor = self.model(input_ids=ids, use_cache=False, **arrays).logits[0]
        return found
