"""What tests run in processes that read images. It imports no torch, as they do not."""

import sys
from collections.abc import Sequence
from pathlib import Path

from pando_worker.vision import processing
from pando_worker.vision.processed import Processed
from tests.worker.vision.photographs import photograph


def has_torch() -> bool:
    return "torch" in sys.modules


def processed(
    models: Sequence[tuple[Path, int]], names: Sequence[str]
) -> list[list[list[Processed]]]:
    """What each model's processor makes of each photograph.

    Args:
        models: the directory and the image token of each
    """
    found = []
    for model_dir, image_token in models:
        processing.load(model_dir, image_token, None)
        assert processing._processor is not None
        found.append([processing._processor.process(photograph(name)) for name in names])
    assert not has_torch()
    return found
