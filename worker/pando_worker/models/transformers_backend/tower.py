"""`VisionTower`: a model's vision part, from pixel values to the decoder's embeddings.

These are transformers' own modules, which also know how a checkpoint's names have changed over the
years. They are loaded with a decoder of no layers, which is then thrown away.
"""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForImageTextToText

from pando_worker.batch import PixelValues
from pando_worker.models.config import ModelConfig
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel, mismatch

_DECODER = ("model.language_model.", "model.text_model.", "model.layers.", "lm_head.")
_SCALES = (".weight_scale", ".weight_scale_inv")  # beside a quantized weight


class VisionTower(nn.Module):
    """
    Attributes:
        hidden_size: of the decoder
        embedding_bytes: of one image token
        device: where it computes
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        """
        Raises:
            BrokenCheckpoint: transformers cannot read it, or tensors are missing.
            UnsupportedModel: its tensors are quantized; those of the decoder may be.
        """
        super().__init__()
        self._model = _loaded(config, dtype).to(device)
        vision = self._model.config.vision_config
        levels = 1 + len(getattr(vision, "deepstack_visual_indexes", ()))
        self.hidden_size: int = self._model.config.get_text_config().hidden_size
        self._width = levels * self.hidden_size
        self.embedding_bytes = self._width * dtype.itemsize
        self._arguments = inspect.signature(self._model.model.get_image_features).parameters
        self._dtype, self.device = dtype, device

    @torch.inference_mode()
    def encode(self, images: Sequence[PixelValues]) -> list[Tensor]:
        """Embeddings of each image, [its tokens, hidden_size], by one batch.

        In a model with features for deeper layers these stand beside the embeddings: [its tokens,
        (1 + these layers) * hidden_size].

        Args:
            images: `alike`

        Raises:
            Exception: whatever the model's modules raise for these pixel values.
        """
        return list(torch.split(self._features(images), [image.tokens for image in images]))

    def blank(self, tokens: int) -> Tensor:
        """In the place of embeddings that the model failed to compute: zeros."""
        return torch.zeros(tokens, self._width, dtype=self._dtype, device=self.device)

    def _features(self, images: Sequence[PixelValues]) -> Tensor:
        """Embeddings of all images, [their tokens, ...]."""
        arrays = {
            name: self._tensor(np.concatenate([image.arrays[name] for image in images]))
            for name in images[0].arrays
            if name in self._arguments
        }
        if "image_grid_thw" in arrays:
            arrays["pixel_values"] = self._repeated(arrays["pixel_values"])
        found = self._model.get_image_features(**arrays, return_dict=True)
        levels = [found.pooler_output, *getattr(found, "deepstack_features", ())]
        return torch.cat([_joined(level) for level in levels], dim=-1)

    def _repeated(self, patches: Tensor) -> Tensor:
        """What `vision/patches.py` has left out of images, but not of videos: [patches, 3 *
        patch_size ** 2] to [patches, 3 * temporal_patch_size * patch_size ** 2]."""
        vision = self._model.config.vision_config
        times: int = vision.temporal_patch_size
        if patches.shape[1] == 3 * times * vision.patch_size**2:
            return patches
        frames = patches.view(len(patches), 3, 1, -1).expand(-1, -1, times, -1)
        return frames.flatten(1)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array).to(self.device)
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor


def alike(images: Iterable[PixelValues]) -> list[list[PixelValues]]:
    """Images in batches for the tower: those whose arrays have equal shapes."""
    by_shapes: dict[Any, list[PixelValues]] = {}
    for image in images:
        shapes = tuple((name, array.shape) for name, array in image.arrays.items())
        by_shapes.setdefault(shapes, []).append(image)
    return list(by_shapes.values())


def _joined(found: Tensor | Sequence[Tensor]) -> Tensor:
    """Features of several images, together or apart: [all tokens, hidden_size]."""
    parts = [found] if isinstance(found, Tensor) else found
    return torch.cat([part.flatten(0, -2) for part in parts])


def _loaded(config: ModelConfig, dtype: torch.dtype) -> Any:
    model_dir = config.path.parent
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()  # it would list the decoder's tensors as unexpected
    try:
        whole = AutoConfig.from_pretrained(model_dir, local_files_only=True)
        if hasattr(whole, "quantization_config"):
            del whole.quantization_config  # concerns the decoder alone, see below
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
    scales = [name for name in report["unexpected_keys"] if name.endswith(_SCALES)]
    if quantized := [name for name in scales if not name.startswith(_DECODER)]:
        raise UnsupportedModel(
            f"the vision part of {model_dir} is quantized ({quantized[0]}), which is not read; use"
            " a checkpoint with a quantized language model alone"
        )
    name = "text_model" if hasattr(model.model, "text_model") else "language_model"
    setattr(model.model, name, nn.Identity())
    model.lm_head = nn.Identity()
    return model.eval().requires_grad_(False)
