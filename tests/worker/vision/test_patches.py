"""Images in patches, at their own size, by the processor of Qwen-VL."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from pando_worker.vision.detail import LOW
from pando_worker.vision.errors import ImageError
from pando_worker.vision.patches import PatchProcessor
from pando_worker.vision.processing import ImageProcessor
from pando_worker.vision.processors import make_processor
from tests.worker.vision.photographs import photograph
from tests.worker.vision.qwen import save_processor

MOST = 1280 * 28 * 28


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> ImageProcessor:
    path = tmp_path_factory.mktemp("processor")
    save_processor(
        path, Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": MOST})
    )
    found = make_processor(path)
    assert isinstance(found, PatchProcessor)
    return ImageProcessor(found, found.image_token_id)


@pytest.mark.parametrize("name", ["rocket.jpg", "hubble_deep_field.jpg", "page.png"])
@pytest.mark.parametrize("small", [False, True], ids=["", "small"])
def test_patches_are_those_of_transformers(
    processor: ImageProcessor, name: str, small: bool
) -> None:
    (found,) = processor.process(photograph(name), small=small)
    theirs = Qwen2VLImageProcessorPil(
        size={"shortest_edge": 3136, "longest_edge": LOW if small else MOST}
    )
    expected = theirs(images=[photograph(name)], return_tensors="np")
    assert list(found.arrays) == ["image_grid_thw", "pixel_values"]
    np.testing.assert_array_equal(found.arrays["image_grid_thw"], expected["image_grid_thw"])
    for frame in expected["pixel_values"].reshape(-1, 3, 2, 14 * 14).swapaxes(0, 2):
        ours = found.arrays["pixel_values"].reshape(-1, 3, 14 * 14).swapaxes(0, 1)
        np.testing.assert_array_equal(ours, frame)
    frames, rows, columns = expected["image_grid_thw"][0].tolist()
    assert found.grid == (frames, rows // 2, columns // 2)
    assert found.length == len(found.token_ids) == frames * rows * columns // 4
    assert set(found.token_ids) == {processor.place.token}


def test_images_of_one_colour_and_as_many_patches_differ(processor: ImageProcessor) -> None:
    """Their patches are equal, but not where their tokens are."""
    wide, high = (processor.process(Image.new("RGB", size))[0] for size in ((224, 56), (56, 224)))
    np.testing.assert_array_equal(wide.arrays["pixel_values"], high.arrays["pixel_values"])
    assert wide.digest != high.digest
    assert (wide.grid, high.grid) == ((1, 2, 8), (1, 8, 2))


def test_images_that_are_too_narrow_are_refused(processor: ImageProcessor) -> None:
    with pytest.raises(ImageError, match="aspect ratio must be smaller than 200"):
        processor.process(Image.new("RGB", (2010, 10)))


def test_the_image_token_of_a_tokenizer_may_have_another_name(tmp_path: Path) -> None:
    save_processor(tmp_path, Qwen2VLImageProcessorPil(), image_token="<picture>")
    assert make_processor(tmp_path).image_token == "<picture>"


@pytest.mark.parametrize(
    ("file", "bounds"),
    [
        (  # Qwen2.5-VL's
            {
                "min_pixels": 3136,
                "max_pixels": 12845056,
                "patch_size": 14,
                "temporal_patch_size": 2,
                "merge_size": 2,
                "image_processor_type": "Qwen2VLImageProcessor",
                "processor_class": "Qwen2_5_VLProcessor",
            },
            (3136, 12845056, 14),
        ),
        (  # Qwen3-VL's
            {
                "size": {"longest_edge": 16777216, "shortest_edge": 65536},
                "patch_size": 16,
                "temporal_patch_size": 2,
                "merge_size": 2,
                "image_mean": [0.5, 0.5, 0.5],
                "image_std": [0.5, 0.5, 0.5],
                "processor_class": "Qwen3VLProcessor",
                "image_processor_type": "Qwen2VLImageProcessorFast",
            },
            (65536, 16777216, 16),
        ),
    ],
)
def test_files_are_read_as_published(
    tmp_path: Path, file: dict[str, Any], bounds: tuple[int, int, int]
) -> None:
    save_processor(tmp_path, Qwen2VLImageProcessorPil())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(file))
    found = make_processor(tmp_path)
    assert isinstance(found, PatchProcessor)
    images = found.image_processor
    size = images.size
    assert (size["shortest_edge"], size["longest_edge"], images.patch_size) == bounds
    (image,) = ImageProcessor(found, found.image_token_id).process(Image.new("RGB", (10, 10)))
    assert image.grid is not None
    least, patch = bounds[0], bounds[2]
    assert image.length * (2 * patch) ** 2 >= least
    assert image.arrays["pixel_values"].shape == (4 * image.length, 3 * patch**2)
