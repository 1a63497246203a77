"""Loads a model's processor of transformers, as it computes with Pillow and numpy.

Torchvision resizes differently, and images need none of it. But some processors of transformers
have a part for videos that does, and some cannot be imported without it: these are our own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pando_worker.vision.patches import PatchProcessor
from pando_worker.vision.rows import RowProcessor

GRIDS = "image_grid_thw"


def make_processor(model_dir: Path) -> Any:
    """
    Raises:
        Exception: whatever transformers raises for a processor that it cannot load.
    """
    from transformers import AutoImageProcessor, AutoProcessor
    from transformers.utils import logging

    logging.set_verbosity_error()
    images = AutoImageProcessor.from_pretrained(model_dir, backend="pil", local_files_only=True)
    if GRIDS in images.model_input_names:
        return PatchProcessor(model_dir, images)
    if type(images).__name__.startswith("Pixtral"):
        return RowProcessor(model_dir, images)
    with without_video():
        processor = AutoProcessor.from_pretrained(model_dir, local_files_only=True)
    processor.image_processor = images
    return processor


@contextmanager
def without_video() -> Iterator[None]:
    """Processors are made, loaded and saved without their part for videos."""
    from transformers import ProcessorMixin

    original = ProcessorMixin.__dict__["get_attributes"]

    def attributes(processor: Any) -> list[str]:
        return [name for name in original.__func__(processor) if name != "video_processor"]

    ProcessorMixin.get_attributes = classmethod(attributes)
    try:
        yield
    finally:
        ProcessorMixin.get_attributes = original
