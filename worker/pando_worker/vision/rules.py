"""The `ImageRule` of a processor of transformers: what routers estimate an image's tokens with."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pando_fleet.images.rule import ImageRule
from pando_worker.vision.detail import pan_and_scan


def rule_of(processor: Any, low_pixels: int = 0) -> ImageRule | None:
    """The rule of a processor; None for one of an unknown class, or configured in an unknown way:
    routers then count no tokens for images.

    Args:
        low_pixels: of an image with `detail` low, where the model sees images at their own size
    """
    make = RULES.get(type(processor).__name__)
    if make is None:
        return None
    try:
        rule = make(processor, processor.image_processor)
        return replace(rule, low_pixels=low_pixels) if rule.kind == "grid" else rule
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _llava(processor: Any, images: Any) -> ImageRule:
    side = images.crop_size["height"] // processor.patch_size
    return ImageRule(kind="fixed", tokens=side * side + _beside(processor))


def _gemma3(processor: Any, images: Any) -> ImageRule:
    tokens = processor.image_seq_length
    around = 4  # the tokens that begin and end an image, and two blank lines around them
    if (scan := pan_and_scan(images)) is None:
        return ImageRule(kind="fixed", tokens=tokens, around=around)
    one, two = (
        len(processor.tokenizer(text, add_special_tokens=False)["input_ids"])
        for text in (processor.replace_image_token({"num_crops": [n]}, 0) for n in (1, 2))
    )
    return ImageRule(
        kind="crops",
        tokens=tokens,
        around=around,
        tile=scan.least_side,
        tile_marks=two - one - tokens,
        tiles_text=one - 2 * tokens - around - (two - one - tokens),
        max_tiles=1 + scan.most,
        low_tiles=1,
        min_shape=scan.least_shape,
    )


def _patches(processor: Any, images: Any) -> ImageRule:
    return ImageRule(
        kind="grid",
        cell=images.patch_size * images.merge_size,
        min_pixels=images.size["shortest_edge"],
        max_pixels=images.size["longest_edge"],
    )


def _pixtral(processor: Any, images: Any) -> ImageRule:
    return ImageRule(
        kind="rows",
        cell=processor.patch_size * processor.spatial_merge_size,
        longest_edge=images.size["longest_edge"],
    )


def _internvl(processor: Any, images: Any) -> ImageRule:
    return ImageRule(
        kind="tiles",
        tokens=processor.image_seq_length,
        around=2,
        tile=images.size["height"],
        min_tiles=images.min_patches,
        max_tiles=images.max_patches,
        low_tiles=1,
    )


def _idefics3(processor: Any, images: Any) -> ImageRule:
    return ImageRule(
        kind="split",
        tokens=processor.image_seq_len,
        around=3,
        tile=images.max_image_size["longest_edge"],
        longest_edge=images.size["longest_edge"],
        max_tiles=0 if images.do_image_splitting else 1,
        low_tiles=1,
    )


def _llava_next(processor: Any, images: Any) -> ImageRule:
    tile = images.crop_size["height"]
    return _canvas(processor, images, tile, (tile // processor.patch_size) ** 2)


def _llava_onevision(processor: Any, images: Any) -> ImageRule:
    most = int(processor.vision_aspect_ratio.removeprefix("anyres_max_"))
    tile, tokens = images.size["height"], processor.num_image_tokens
    return _canvas(processor, images, tile, tokens, max_tiles=most)


def _canvas(processor: Any, images: Any, tile: int, tokens: int, max_tiles: int = 0) -> ImageRule:
    return ImageRule(
        kind="canvas",
        tokens=tokens,
        around=max(0, _beside(processor)),
        tile=tile,
        max_tiles=max_tiles,
        canvases=tuple((height, width) for height, width in images.image_grid_pinpoints),
    )


def _beside(processor: Any) -> int:
    """Tokens of a view beside those of its patches: negative if the tower's first is left out."""
    is_left_out: bool = processor.vision_feature_select_strategy == "default"
    return int(getattr(processor, "num_additional_image_tokens", 0)) - is_left_out


RULES: dict[str, Callable[[Any, Any], ImageRule]] = {
    "LlavaProcessor": _llava,
    "Gemma3Processor": _gemma3,
    "PatchProcessor": _patches,
    "RowProcessor": _pixtral,
    "InternVLProcessor": _internvl,
    "Idefics3Processor": _idefics3,
    "LlavaNextProcessor": _llava_next,
    "LlavaOnevisionProcessor": _llava_onevision,
}
