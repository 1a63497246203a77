"""What tests run in processes that read images. It imports no torch, as they do not."""

import resource
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


def page_faults_an_image(name: str, width: int, height: int) -> float:
    """Of a photograph in a size whose pixel values take megabytes, after a few of them."""
    assert processing._processor is not None
    image = photograph(name).resize((width, height))
    for _ in range(5):
        processing._processor.process(image)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        processing._processor.process(image)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10
