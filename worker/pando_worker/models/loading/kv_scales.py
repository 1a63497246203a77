"""The scales of keys and values in fp8 that a checkpoint brings.

They lie beside the attention of a layer (compressed-tensors, AutoFP8), or beside the projections to
keys and values (ModelOpt), and have the meaning of `KVScales`.
"""

import logging
import math
import re
from pathlib import Path

import torch

from pando_worker.attention.backend import KVScales
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.loading.checkpoint import gguf_files, open_checkpoint
from pando_worker.models.loading.checkpoint_tensor import Stored

log = logging.getLogger("pando.worker.models")

_NAME = re.compile(
    r"(?:^|\.)(?:model|language_model)\.layers\.(\d+)\.self_attn\."
    r"(?:attn\.|[kv]_proj\.)?(k|v|kv)_scale$"
)


def read_kv_scales(model_dir: Path) -> dict[int, KVScales]:
    """Of each layer that has both, by its number.

    Raises:
        BrokenCheckpoint: files are unreadable, or a scale is no positive number.
    """
    if gguf_files(model_dir):
        return {}
    found: dict[int, dict[str, float]] = {}
    with open_checkpoint(model_dir) as tensors:
        for name, tensor in tensors.items():
            if (match := _NAME.search(name)) is None:
                continue
            layer, sides = int(match[1]), match[2]
            if math.prod(tensor.shape) != 1:
                log.warning("%s has a scale for each head, which is not used", name)
                continue
            for side in sides:  # `kv_scale` is for both
                found.setdefault(layer, {})[side] = _number(name, tensor)
    both = {layer: sides for layer, sides in found.items() if len(sides) == 2}
    return {layer: KVScales(sides["k"], sides["v"]) for layer, sides in both.items()}


def _number(name: str, tensor: Stored) -> float:
    whole = tuple(slice(0, size) for size in tensor.shape)
    value = float(tensor.read(whole, torch.device("cpu")))
    if not (math.isfinite(value) and value > 0):
        raise BrokenCheckpoint(f"{tensor.path}: {name} is {value}, no positive number")
    return value
