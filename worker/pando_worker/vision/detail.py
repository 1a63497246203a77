"""How much of an image a model sees: what its processor is asked for by a request's `detail`.

transformers' processors take these as arguments, so an image with little `detail` costs as few
tokens as the model can see one with: a smaller image, or a view of the whole without tiles.
"""

from dataclasses import dataclass
from typing import Any

LOW = 512 * 512
"""Pixels of an image with `detail` low, as in OpenAI's API, in models that see it at its own
size."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Of a processor's call, besides image and text.

    Attributes:
        usual: for images with `detail` high, auto or none
        low: for images with `detail` low; the same if the model always sees as much
    """

    usual: dict[str, Any]
    low: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PanAndScan:
    """Gemma 3's crops of wide and of high images, each of which it sees as an image of its own.

    Attributes:
        least_side: of a crop, in pixels
        most: crops of an image
        least_shape: the longer side by the shorter one, from which on there are crops
    """

    least_side: int
    most: int
    least_shape: float


def arguments_of(processor: Any) -> Arguments:
    """
    Args:
        processor: of `make_processor`
    """
    match type(processor).__name__:
        case "PatchProcessor":
            return Arguments({}, {"most_pixels": LOW})
        case "InternVLProcessor":  # whatever its image processor's files say, as in transformers
            return Arguments({"crop_to_patches": True}, {"crop_to_patches": False})
        case "Idefics3Processor":
            return Arguments({}, {"do_image_splitting": False})
        case "Gemma3Processor":
            whole = {"do_pan_and_scan": False}
            scan = pan_and_scan(processor.image_processor)
            return Arguments(whole if scan is None else _arguments(scan), whole)
        case _:
            return Arguments({}, {})


def pan_and_scan(images: Any) -> PanAndScan | None:
    """What the files of an image processor say of it; None if they leave it off. transformers'
    `Gemma3Processor` goes by arguments alone."""
    if not getattr(images, "do_pan_and_scan", False):
        return None

    def field(name: str, default: float) -> Any:
        value = getattr(images, f"pan_and_scan_{name}")
        return default if value is None else value

    return PanAndScan(
        least_side=field("min_crop_size", 256),
        most=field("max_num_crops", 4),
        least_shape=field("min_ratio_to_activate", 1.2),
    )


def _arguments(scan: PanAndScan) -> dict[str, Any]:
    return {
        "do_pan_and_scan": True,
        "pan_and_scan_min_crop_size": scan.least_side,
        "pan_and_scan_max_num_crops": scan.most,
        "pan_and_scan_min_ratio_to_activate": scan.least_shape,
    }
