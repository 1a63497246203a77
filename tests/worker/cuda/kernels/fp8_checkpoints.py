"""Checkpoints whose linear layers are in fp8, made of others."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pando_worker.models.fp8 import BLOCK, LARGEST

Form = Callable[[Tensor], tuple[Tensor, str]]
"""The scales of a weight in the file's form, and the end of their name."""


def by_tensor(weight: Tensor) -> tuple[Tensor, str]:
    return weight.abs().max() / LARGEST, "_scale"


def by_row(weight: Tensor) -> tuple[Tensor, str]:
    return weight.abs().amax(1, keepdim=True) / LARGEST, "_scale"


def by_block(weight: Tensor) -> tuple[Tensor, str]:
    rows, columns = (-(-size // BLOCK) for size in weight.shape)
    scales = torch.empty(rows, columns)
    for row in range(rows):
        for column in range(columns):
            block = weight[row * BLOCK :, column * BLOCK :][:BLOCK, :BLOCK]
            scales[row, column] = block.abs().max() / LARGEST
    return scales, "_scale_inv"


def in_fp8(source: Path, target: Path, form: Form) -> Path:
    """The checkpoint `source` with its linear layers in fp8."""
    target.mkdir()
    fields: dict[str, Any] = json.loads((source / "config.json").read_text())
    fields["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}
    (target / "config.json").write_text(json.dumps(fields))
    tensors = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        tensors[name] = tensor
        if "_proj" not in name:
            continue
        weight = tensor.float()
        scales, end = form(weight)
        whole = scales
        if form is by_block:
            whole = scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
            whole = whole[: len(weight), : weight.shape[1]]
        tensors[name] = (weight / whole).to(torch.float8_e4m3fn)
        tensors[f"{name}{end}"] = scales.contiguous()
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target
