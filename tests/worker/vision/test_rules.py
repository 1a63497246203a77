"""The rules that workers report, against the counts of transformers' own processors."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    Gemma3Processor,
    Idefics3Processor,
    InternVLProcessor,
    LlavaNextProcessor,
    LlavaOnevisionProcessor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLProcessor,
    Qwen2VLProcessor,
    Qwen3VLProcessor,
)
from transformers.image_utils import ChannelDimension
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
from transformers.models.pixtral.image_processing_pil_pixtral import (
    PixtralImageProcessorPil,
    get_resize_output_image_size,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from pando_fleet.images.rule import ImageRule
from pando_fleet.images.size import Size
from pando_worker.vision.detail import LOW
from pando_worker.vision.patches import PatchProcessor
from pando_worker.vision.processing import ImageProcessor
from pando_worker.vision.rows import RowProcessor
from pando_worker.vision.rules import rule_of
from tests.worker.server.text.tokenizers_for_tests import byte_level
from tests.worker.vision.checkpoints import Seer
from tests.worker.vision.photographs import photograph
from tests.worker.vision.qwen import QwenSeer, save_qwen

SPECIAL = {
    "image_token": "<image>",
    "boi_token": "<boi>",
    "eoi_token": "<eoi>",
    "video_token": "<video>",
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<ctx>",
}


def tokenizer() -> PreTrainedTokenizerFast:
    made = byte_level()
    made.add_special_tokens(list(SPECIAL.values()))
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens=SPECIAL,
    )


def bare(kind: type[Any], images: Any, **fields: Any) -> Any:
    """A processor without its tokenizer's and videos' part, which count no tokens of images."""
    made: Any = object.__new__(kind)
    made.image_processor = images
    for name, value in fields.items():
        setattr(made, name, value)
    own = getattr(kind, "images_kwargs", {})
    made._merge_kwargs = lambda **given: {"images_kwargs": own, "videos_kwargs": {}}
    return made


def patches(images: Any) -> Any:
    """The worker's own class for Qwen's images."""
    return bare(PatchProcessor, images)


GRIDS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
MANY = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
PROCESSORS = {
    "LLaVA 1.5": bare(
        LlavaProcessor,
        CLIPImageProcessorPil(size={"shortest_edge": 336}, crop_size=336),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ),
    "Qwen2-VL": bare(Qwen2VLProcessor, Qwen2VLImageProcessorPil()),
    "Qwen2.5-VL": bare(
        Qwen2_5_VLProcessor, Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=12_845_056)
    ),
    "Qwen3-VL": bare(
        Qwen3VLProcessor,
        Qwen2VLImageProcessorPil(
            patch_size=16, size={"shortest_edge": 65_536, "longest_edge": 16_777_216}
        ),
    ),
    "InternVL 3": bare(
        InternVLProcessor,
        GotOcr2ImageProcessorPil(
            size={"height": 448, "width": 448}, crop_to_patches=True, max_patches=12
        ),
        image_seq_length=256,
    ),
    # So are its files, and yet transformers cuts images.
    "InternVL 3, whose files turn tiles off": bare(
        InternVLProcessor,
        GotOcr2ImageProcessorPil(size={"height": 448, "width": 448}, crop_to_patches=False),
        image_seq_length=256,
    ),
    "Idefics3": bare(
        Idefics3Processor,
        Idefics3ImageProcessorPil(),
        image_seq_len=169,
        tokenizer=lambda text, **_: {"input_ids": [0]},
    ),
    "Idefics3 without tiles": bare(
        Idefics3Processor,
        Idefics3ImageProcessorPil(do_image_splitting=False),
        image_seq_len=169,
        tokenizer=lambda text, **_: {"input_ids": [0]},
    ),
    "LLaVA-NeXT": bare(
        LlavaNextProcessor,
        LlavaNextImageProcessorPil(
            size={"shortest_edge": 336}, crop_size=336, image_grid_pinpoints=GRIDS
        ),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ),
    "LLaVA-OneVision": bare(
        LlavaOnevisionProcessor,
        LlavaOnevisionImageProcessorPil(
            size={"height": 384, "width": 384}, image_grid_pinpoints=MANY
        ),
        num_image_tokens=729,
        vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_9",
    ),
}
SIDE = st.one_of(st.integers(1, 300), st.integers(100, 9000))


@pytest.mark.parametrize("family", PROCESSORS)
@settings(max_examples=300, deadline=None)
@given(width=SIDE, height=SIDE)
def test_tokens_by_the_rule_are_those_of_transformers(family: str, width: int, height: int) -> None:
    if max(width, height) > 100 * min(width, height):
        return  # processors refuse it, or make nothing of it
    processor = PROCESSORS[family]
    has_patches = isinstance(processor.image_processor, Qwen2VLImageProcessorPil)
    rule = sent(rule_of(patches(processor.image_processor) if has_patches else processor))
    expected = processor._get_num_multimodal_tokens(image_sizes=[(height, width)])
    assert rule.tokens_of(Size(width, height)) == expected["num_image_tokens"][0]


# The class itself needs torchvision.
@pytest.mark.parametrize(
    ("edge", "patch", "merge"), [(1024, 16, 1), (1540, 14, 2)], ids=["Pixtral", "Mistral Small 3"]
)
@settings(max_examples=300, deadline=None)
@given(width=SIDE, height=SIDE)
def test_pixtrals_rows_are_those_of_transformers(
    edge: int, patch: int, merge: int, width: int, height: int
) -> None:
    if max(width, height) > 100 * min(width, height):
        return
    images = PixtralImageProcessorPil(size={"longest_edge": edge})
    rule = sent(rule_of(bare(RowProcessor, images, patch_size=patch, spatial_merge_size=merge)))
    cell = patch * merge
    blank = np.zeros((height, width, 3), dtype=np.uint8)
    resized = get_resize_output_image_size(blank, (edge, edge), (cell, cell), ChannelDimension.LAST)
    rows, columns = resized[0] // cell, resized[1] // cell
    assert rule.tokens_of(Size(width, height)) == rows * (columns + 1)


def test_gemma_3_has_the_tokens_around_an_image_too() -> None:
    text = tokenizer()
    processor = Gemma3Processor(Gemma3ImageProcessorPil(), text, image_seq_length=16)
    rule = sent(rule_of(processor))
    found = processor(images=[photograph("coffee.png")], text=["<boi>"], return_tensors="np")
    assert rule.tokens_of(Size(600, 400)) == pytest.approx(found["input_ids"].shape[1], abs=2)


def test_what_the_worker_reads_has_as_many_tokens_as_its_rule_says(seer: Seer) -> None:
    """Of each family; text around an image is tokenized with the prompt's own."""
    rule = sent(seer.ours.rule)
    around = bool(seer.ours.place.before) + bool(seer.ours.place.after)
    for name in ("coffee.png", "rocket.jpg", "page.png"):
        image = photograph(name)
        (read,) = seer.ours.process(image)
        assert rule.tokens_of(Size(*image.size)) == pytest.approx(
            len(read.token_ids) + around, abs=1
        )


def test_what_the_worker_reads_in_patches_has_as_many_tokens_as_its_rule_says(
    tmp_path: Path,
) -> None:
    found = QwenSeer(save_qwen(tmp_path, "qwen2-vl")).processor
    processor = ImageProcessor(found, found.image_token_id)
    rule = sent(processor.rule)
    for name in ("coffee.png", "rocket.jpg"):
        image = photograph(name)
        assert len(processor.process(image)[0].token_ids) == rule.tokens_of(Size(*image.size))


def test_detail_low_has_fewer_tokens_where_the_worker_makes_images_smaller() -> None:
    images = Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 1280 * 28 * 28})
    rule = sent(rule_of(patches(images), LOW))
    for width, height in ((4000, 3000), (300, 200), (513, 511)):
        low = images.get_number_of_image_patches(height, width, {"max_pixels": LOW})
        assert rule.tokens_of(Size(width, height), is_low=True) == low // 4
        full = images.get_number_of_image_patches(height, width)
        assert rule.tokens_of(Size(width, height)) == full // 4
    fixed = ImageRule(kind="fixed", tokens=576)
    assert fixed.tokens_of(None, is_low=True) == 576


def test_an_unknown_processor_has_no_rule() -> None:
    assert rule_of(object()) is None
    assert rule_of(patches(object())) is None


def sent(rule: ImageRule | None) -> ImageRule:
    """As it arrives in a heartbeat."""
    return msgspec.json.decode(json.dumps(msgspec.to_builtins(rule)), type=ImageRule)
