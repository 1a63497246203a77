"""Tiny checkpoints of families that see, with random weights."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3Processor,
    Gemma3TextConfig,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionProcessor,
    LlavaProcessor,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    PixtralVisionConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    SiglipVisionConfig,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

from pando_worker.vision.processors import without_video
from pando_worker.vision.rows import RowProcessor
from tests.worker.server.text.tokenizers_for_tests import SPECIAL, byte_level
from tests.worker.vision.checkpoints import IMAGE

# As LLaVA 1.5's: it reads lists of parts alone.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{{ ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def _clip(patch_size: int) -> CLIPVisionConfig:
    return CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=2,
        image_size=28,
        patch_size=patch_size,
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
        vision_config=_clip(7),
        text_config=LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=2, **_DECODER),
        image_token_index=processor.image_token_id,
    )
    return _save(path, LlavaForConditionalGeneration(config), processor)


def save_gemma3(path: Path, **images: Any) -> Path:
    """Gemma 3, with 16 tokens an image, which see each other: in some layers through a window that
    is shorter. New lines beside an image become one token with those of the text, as in Gemma's
    vocabulary.

    Args:
        images: fields of its image processor
    """
    marks = {"boi_token": "<boi>", "image_token": "<soft>", "eoi_token": "<eoi>"}
    tokenizer = _tokenizer(*marks.values(), words=["\n\n", "\n\n\n", "\n\n\n\n"], marks=marks)
    processor = Gemma3Processor(
        Gemma3ImageProcessorPil(size={"height": 56, "width": 56}, **images),
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


_PIXTRAL = PixtralVisionConfig(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    head_dim=16,
    image_size=56,
    patch_size=4,
)


def _rows_processor(path: Path, longest_edge: int, **fields: int) -> RowProcessor:
    """Saved in its publisher's form."""
    tokenizer = _tokenizer("[IMG]", "[IMG_BREAK]", "[IMG_END]")
    tokenizer.chat_template = CHAT_TEMPLATE.replace(IMAGE, "[IMG]")
    tokenizer.save_pretrained(path)
    images = PixtralImageProcessorPil(size={"longest_edge": longest_edge}, patch_size=4)
    images.save_pretrained(path)
    config = {"processor_class": "PixtralProcessor", "patch_size": 4, **fields}
    (path / "processor_config.json").write_text(json.dumps(config))
    return RowProcessor(path, images)


def save_pixtral(path: Path) -> Path:
    """Pixtral: images at their own size, with a mark behind each row of tokens."""
    processor = _rows_processor(path, longest_edge=24)
    tokenizer = processor.tokenizer
    config = LlavaConfig(
        vision_config=_PIXTRAL,
        text_config=MistralConfig(
            vocab_size=len(tokenizer), num_hidden_layers=2, head_dim=8, **_DECODER
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    return _save(path, LlavaForConditionalGeneration(config))


def save_mistral3(path: Path) -> Path:
    """Mistral Small 3: as Pixtral, with squares of patches merged into a token each."""
    processor = _rows_processor(path, longest_edge=40, spatial_merge_size=2)
    tokenizer = processor.tokenizer
    config = Mistral3Config(
        vision_config=_PIXTRAL,
        text_config=MistralConfig(
            vocab_size=len(tokenizer), num_hidden_layers=2, head_dim=8, **_DECODER
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"),
        spatial_merge_size=2,
        tie_word_embeddings=False,
    )
    return _save(path, Mistral3ForConditionalGeneration(config))


def save_llava_next(path: Path) -> Path:
    """LLaVA-NeXT: an image whole and in tiles, whose rows end with a learned embedding."""
    tokenizer = _tokenizer(IMAGE)
    pinpoints = [[28, 56], [56, 28], [56, 56]]
    processor = LlavaNextProcessor(
        LlavaNextImageProcessorPil(
            size={"shortest_edge": 28},
            crop_size={"height": 28, "width": 28},
            image_grid_pinpoints=pinpoints,
        ),
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )
    config = LlavaNextConfig(
        vision_config=_clip(14),
        text_config=LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=2, **_DECODER),
        image_token_index=processor.image_token_id,
        image_grid_pinpoints=pinpoints,
    )
    return _save(path, LlavaNextForConditionalGeneration(config), processor)


def save_llava_onevision(path: Path) -> Path:
    """LLaVA-OneVision: tiles as LLaVA-NeXT's, of large images with fewer tokens each."""
    tokenizer = _tokenizer(IMAGE, "<video>")
    pinpoints = [[28, 28], [28, 56], [56, 28], [56, 56], [84, 56], [56, 84]]
    with without_video():
        processor = LlavaOnevisionProcessor(
            LlavaOnevisionImageProcessorPil(
                size={"height": 28, "width": 28}, image_grid_pinpoints=pinpoints
            ),
            tokenizer,
            num_image_tokens=16,
            vision_feature_select_strategy="full",
            vision_aspect_ratio="anyres_max_2",
            chat_template=CHAT_TEMPLATE,
        )
    config = LlavaOnevisionConfig(
        vision_config=SiglipVisionConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=28,
            patch_size=7,
            vision_use_head=False,
        ),
        text_config=Qwen2Config(vocab_size=len(tokenizer), num_hidden_layers=2, **_DECODER),
        image_token_index=processor.image_token_id,
        video_token_index=processor.video_token_id,
        image_grid_pinpoints=pinpoints,
        vision_aspect_ratio="anyres_max_2",
    )
    return _save(path, LlavaOnevisionForConditionalGeneration(config), processor)


def save_internvl(path: Path) -> Path:
    """InternVL 3: an image in as many tiles as suit its shape, and whole, between two marks."""
    marks = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tokenizer = _tokenizer(*marks.values(), marks=marks)
    with without_video():
        processor = InternVLProcessor(
            GotOcr2ImageProcessorPil(
                size={"height": 28, "width": 28}, crop_to_patches=True, max_patches=3
            ),
            tokenizer,
            image_seq_length=4,
            chat_template=CHAT_TEMPLATE.replace(IMAGE, "<IMG_CONTEXT>"),
        )
    config = InternVLConfig(
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 7,
        },
        text_config=Qwen2Config(vocab_size=len(tokenizer), num_hidden_layers=2, **_DECODER),
        image_token_id=processor.image_token_id,
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    return _save(path, InternVLForConditionalGeneration(config), processor)


def save_idefics3(path: Path) -> Path:
    """Idefics3 and SmolVLM: rows and columns of tiles and a view of the whole, each named by marks
    and in lines of their own."""
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    marks = ["<fake_token_around_image>", IMAGE, "<end_of_utterance>", "<global-img>", *tiles]
    tokenizer = _tokenizer(*marks)
    processor = Idefics3Processor(
        Idefics3ImageProcessorPil(
            size={"longest_edge": 56}, max_image_size={"longest_edge": 28}, do_image_splitting=True
        ),
        tokenizer,
        image_seq_len=4,
        chat_template=CHAT_TEMPLATE,
    )
    config = Idefics3Config(
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 7,
        },
        text_config=LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=2, **_DECODER),
        image_token_id=processor.image_token_id,
    )
    return _save(path, Idefics3ForConditionalGeneration(config), processor)


FAMILIES: dict[str, Callable[[Path], Path]] = {
    "llava": save_llava,
    "gemma3": save_gemma3,
    "pixtral": save_pixtral,
    "mistral3": save_mistral3,
    "llava-next": save_llava_next,
    "llava-onevision": save_llava_onevision,
    "internvl": save_internvl,
    "idefics3": save_idefics3,
}


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


def _save(path: Path, model: Any, processor: Any = None) -> Path:
    """
    Args:
        processor: None if it is there already
    """
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
    if processor is not None:
        processor.tokenizer.chat_template = processor.chat_template
        processor.tokenizer.save_pretrained(path)
        with without_video():
            processor.save_pretrained(path)
    return path
