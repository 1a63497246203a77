"""Keeps a decoder's weights in the 16 bits that the checkpoint has them in, where the CPU's kernels
multiply with them.

A product widens them to float32 as it reads them, so answers are those of float32 to the last bit,
and a decode step reads half as much memory. The encoder's weights become float32: its products have
thousands of rows, and widening would only add to them.
"""

import logging
from collections.abc import Mapping

import torch
from torch import nn

from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear
from pando_worker.models.layers.seq2seq import EncoderDecoder
from pando_worker.models.layers.vocabulary import VocabularyTable
from pando_worker.models.layers.weight import PlainWeight
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.fills import fills_of

log = logging.getLogger("pando.worker.models")

_HALVES = {"F16": torch.float16, "BF16": torch.bfloat16}  # as safetensors writes them


def keep_halves(model: EncoderDecoder, tensors: Mapping[str, Stored]) -> None:
    """
    Args:
        model: without memory yet
        tensors: of the checkpoint, by the model's names
    """
    of_decoder = set(model.decoder_side.modules())
    kept = 0
    for name, module in model.named_modules():
        if module not in of_decoder or not isinstance(
            module, ColumnParallelLinear | RowParallelLinear | VocabularyTable
        ):
            continue
        if isinstance(module.weight, PlainWeight) and (dtype := _dtype(name, module, tensors)):
            module.weight.keep_as(dtype)
            kept += 1
    if kept:
        log.info("%d matrices of the decoder stay in the checkpoint's 16 bits", kept)


def _dtype(name: str, module: nn.Module, tensors: Mapping[str, Stored]) -> torch.dtype | None:
    """Of all tensors that fill a layer's matrix, if they have 16 bits."""
    matrices = [fill.name for fill in fills_of(name, module) if len(fill.part) == 2]
    found = {tensors[each].dtype if each in tensors else None for each in matrices}
    return _HALVES.get(found.pop() or "") if len(found) == 1 else None
