"""Runs a vision tower once before it serves: a processor that does not fit it is found while the
model loads, and not by the first image."""

import logging

from PIL import Image

from pando_worker.batch import PixelValues
from pando_worker.models.config import ModelConfig
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.transformers_backend.tower import VisionTower
from pando_worker.vision.processing import ImageProcessor
from pando_worker.vision.processors import make_processor

log = logging.getLogger("pando.worker.runner")

_SIZE = 640, 480  # of a usual image


def try_tower(tower: VisionTower, config: ModelConfig) -> None:
    """
    Raises:
        BrokenCheckpoint: the tower refuses what the processor makes of an image, or makes another
            number of embeddings than the image has tokens.
    """
    model_dir, token = config.path.parent, config.image_token
    assert token is not None
    try:
        processor = ImageProcessor(make_processor(model_dir), token)
    except Exception as error:  # whatever transformers raises; the processes that read images end
        log.warning("the image processor of %s cannot be loaded: %s", model_dir, error)
        return
    try:
        (image, *_) = processor.process(Image.new("RGB", _SIZE))
        tokens = image.token_ids.count(token)
        tower.encode([PixelValues(image.digest, tokens, image.arrays)])
    except Exception as error:  # of shapes and arguments
        raise BrokenCheckpoint(
            f"the image processor of {model_dir} does not fit its vision part: an image of"
            f" {_SIZE[0]} x {_SIZE[1]} pixels fails with {type(error).__name__}: {error}"
        ) from error
