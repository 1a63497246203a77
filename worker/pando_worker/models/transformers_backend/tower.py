"""`VisionTower`: a model's vision part, from pixel values to the decoder's embeddings.

These are transformers' own modules, which also know how a checkpoint's names have changed over the
years. They are loaded with a decoder of no layers, which is then thrown away.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForImageTextToText

from pando_worker.models.config import ModelConfig
from pando_worker.models.errors import BrokenCheckpoint, mismatch

_DECODER = ("model.language_model.", "lm_head.")


class VisionTower(nn.Module):
    """
    Attributes:
        embedding_bytes: of one image token
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        """
        Raises:
            BrokenCheckpoint: transformers cannot read it, or tensors are missing.
        """
        super().__init__()
        self._model = _loaded(config, dtype).to(device)
        hidden_size: int = self._model.config.get_text_config().hidden_size
        self.embedding_bytes = hidden_size * dtype.itemsize
        self._dtype, self._device = dtype, device

    @torch.inference_mode()
    def encode(self, images: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        """Embeddings of each image, [its tokens, hidden_size]; equal shapes run as one batch."""
        found: dict[int, Tensor] = {}
        for shape in dict.fromkeys(image.shape for image in images):
            alike = [number for number, image in enumerate(images) if image.shape == shape]
            pixels = torch.from_numpy(np.stack([images[number] for number in alike]))
            features = self._model.get_image_features(
                pixel_values=pixels.to(self._device, self._dtype), return_dict=True
            ).pooler_output
            found |= zip(alike, features, strict=True)
        return [found[number] for number in range(len(images))]


def _loaded(config: ModelConfig, dtype: torch.dtype) -> Any:
    model_dir = config.path.parent
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()  # it would list the decoder's tensors as unexpected
    try:
        whole = AutoConfig.from_pretrained(model_dir, local_files_only=True)
        text = whole.get_text_config()
        text.num_hidden_layers, text.vocab_size, text.pad_token_id = 0, 1, None
        model, report = AutoModelForImageTextToText.from_pretrained(
            model_dir,
            config=whole,
            dtype=dtype,
            ignore_mismatched_sizes=True,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as error:  # of files, formats and shapes
        raise BrokenCheckpoint(
            f"transformers cannot load the vision part of {model_dir}: {error}"
        ) from error
    # Tensors of other shapes than config.json says count as missing.
    absent = [*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])]
    if missing := [name for name in absent if not name.startswith(_DECODER)]:
        raise mismatch(model_dir, missing, [])
    model.model.language_model = nn.Identity()
    model.lm_head = nn.Identity()
    return model.eval().requires_grad_(False)
