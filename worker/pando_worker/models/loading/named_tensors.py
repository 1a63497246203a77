"""A checkpoint's tensors by the names of our families' parameters."""

from torch import nn

from pando_worker.models.config import ModelConfig
from pando_worker.models.kinds.base_model import as_with_head
from pando_worker.models.kinds.text_part import text_tensors
from pando_worker.models.layers.text_encoder import TextEncoder
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.quantization import read_quantization


def named_tensors(
    tensors: dict[str, Stored], config: ModelConfig, model: nn.Module
) -> dict[str, Stored]:
    """By our families' names, and as if they had never been quantized by `quantization_config`."""
    if (quantization := read_quantization(config)) is not None:
        tensors = quantization.decoded(tensors)
    if isinstance(model, TextEncoder):
        return _of_text_encoder(tensors, model)
    return as_with_head(text_tensors(tensors))


def _of_text_encoder(tensors: dict[str, Stored], model: TextEncoder) -> dict[str, Stored]:
    """By our families' names. Old checkpoints have other names for the weights of norms."""
    return {
        name.removeprefix(model.base)
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in tensors.items()
    }
