"""Checkpoints of quantized weights: which are read, and how they are decoded.

Decoded means: to numbers of the model's dtype, while it loads. The model is then computed with and
held in memory as if it had never been quantized; what remains of the quantization is its rounding
of the weights. Where a device multiplies with fp8 or mxfp4, layers keep it (keep_narrow.py). Scales
of activations are not used; those of keys and values are read where the KV pool is in fp8
(kv_scales.py).

Read are

- fp8 (e4m3) with scales a block, as DeepSeek and Qwen publish them, a row or a tensor; of
  compressed-tensors also, where all quantized layers have such weights,
- mxfp4 (OCP Microscaling Formats 1.0) in GPT-OSS.

Others are refused. Of the libraries for AWQ and GPTQ only GPTQModel is maintained (7.7: it comes as
source, asks for a newer torch than this project's and wants to own the model and its layers);
compressed-tensors 0.20 has no kernels and decodes, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from pando_fleet.misread import misread
from pando_worker.models.config import ModelConfig
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.fp8 import BLOCK, Fp8Matrix, Scaling
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.mxfp4 import RUN, Mxfp4Matrix
from pando_worker.models.rope import Count

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

# What may lie beside a weight, and is no weight.
_UNUSED = (".input_scale", ".output_scale", ".k_scale", ".v_scale", ".kv_scale", ".q_scale")


class Quantization(Protocol):
    @property
    def name(self) -> str:
        """For the log."""
        ...

    def decoded(self, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
        """The tensors of the model as if it had never been quantized.

        Raises:
            BrokenCheckpoint: a scale is missing or misshapen.
        """
        ...


def read_quantization(config: ModelConfig) -> Quantization | None:
    """How the model's weights are quantized, if they are.

    Raises:
        UnsupportedModel: in a way that is not read.
        BrokenCheckpoint: malformed `quantization_config`.
    """
    raw = config.fields.get("quantization_config")
    if raw is None:
        return None
    try:
        fields = msgspec.convert(raw, _Fields)
    except msgspec.ValidationError as error:
        raise BrokenCheckpoint(
            f"{config.path}: quantization_config: {misread(error).about('it')}"
        ) from error
    match fields.quant_method:
        case "fp8" | "fbgemm_fp8":
            return Fp8(fields.weight_block_size)
        case "mxfp4" if config.architecture == "GptOssForCausalLM":
            return Mxfp4()
        case "compressed-tensors":
            return _compressed_tensors(config, fields)
    raise _refusal(config, f"quant_method {fields.quant_method!r}")


@dataclass(frozen=True, slots=True)
class Fp8:
    """
    Attributes:
        block: rows and columns of a weight that have one scale, where scales are a matrix
    """

    block: tuple[int, int] | None
    name: str = "fp8"

    def decoded(self, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
        result: dict[str, Stored] = {}
        for name, tensor in tensors.items():
            if name.endswith((".weight_scale", ".weight_scale_inv", *_UNUSED)):
                continue
            result[name] = tensor
            if tensor.dtype == "F8_E4M3":
                scale = tensors.get(f"{name}_scale_inv") or tensors.get(f"{name}_scale")
                if scale is None:
                    raise BrokenCheckpoint(f"{tensor.path}: {name} is in fp8 and has no scale")
                block = self._block(name, tensor, scale)
                result[name] = ScaledTensor(tensor, scale, block)
        return result

    def _block(self, name: str, tensor: Stored, scale: Stored) -> tuple[int, int]:
        if len(tensor.shape) == 2:
            rows, columns = tensor.shape
            if scale.shape in ((), (1,), (1, 1)):
                return rows, columns
            if scale.shape in ((rows,), (rows, 1)):
                return 1, columns
            if self.block is not None:
                high, wide = self.block
                if scale.shape == (-(-rows // high), -(-columns // wide)):
                    return self.block
        raise BrokenCheckpoint(
            f"{scale.path}: the scale of {name} is {list(scale.shape)}, which is none for"
            f" {list(tensor.shape)} in blocks of {self.block}"
        )


@dataclass(frozen=True, slots=True)
class Mxfp4:
    """Of stacked experts: `X_blocks` and `X_scales` are X, whose inputs come before its outputs."""

    name: str = "mxfp4"

    def decoded(self, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
        result: dict[str, Stored] = {}
        for name, tensor in tensors.items():
            if name.endswith("_blocks"):
                logical = name.removesuffix("_blocks")
                scales = tensors.get(f"{logical}_scales")
                if scales is None or (*scales.shape, RUN // 2) != tensor.shape:
                    raise BrokenCheckpoint(
                        f"{tensor.path}: {name} is {list(tensor.shape)}, {logical}_scales is"
                        f" {scales and list(scales.shape)}"
                    )
                result[logical] = Mxfp4Tensor(tensor, scales)
            elif not name.endswith("_scales"):
                result[name] = tensor
        return result


@dataclass(frozen=True, slots=True)
class ScaledTensor:
    """A `Stored` weight, [rows, columns]: each block of it times its scale."""

    weight: Stored
    scale: Stored
    block: tuple[int, int]
    dtype: str = "F32"

    @property
    def path(self) -> Path:
        return self.weight.path

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape

    @property
    def scaling(self) -> Scaling | None:
        """The scales of `kept`; None if it is not for these."""
        if self.block == (BLOCK, BLOCK):
            return "blocks"
        rows, columns = self.shape
        return "rows" if self.block in ((1, columns), (rows, columns)) else None

    def kept(self, part: tuple[slice, ...], device: torch.device) -> Fp8Matrix:
        """A part as it is; of blocks, whole ones."""
        values, grid = self.weight.read(part, device), self._grid(device)
        rows, columns = part
        if self.scaling == "rows":
            return Fp8Matrix(values, grid[:, 0].expand(self.shape[0])[rows])
        blocks = [slice(each.start // BLOCK, each.stop // BLOCK) for each in (rows, columns)]
        return Fp8Matrix(values, grid[blocks[0], blocks[1]])

    def read(self, part: tuple[slice, ...], device: torch.device) -> Tensor:
        rows, columns = (
            torch.arange(one.start, one.stop, device=device) // size
            for one, size in zip(part, self.block, strict=True)
        )
        values = self.weight.read(part, device).float()
        return values.mul_(self._grid(device)[:, columns][rows])

    def _grid(self, device: torch.device) -> Tensor:
        """The scales, float32, a row for each row of blocks."""
        scale = self.scale.read((), device).float()
        return scale.view(-(-self.shape[0] // self.block[0]), -1)


@dataclass(frozen=True, slots=True)
class Mxfp4Tensor:
    """A `Stored` weight, [experts, inputs, outputs], from 4-bit floats with scales along inputs."""

    blocks: Stored  # U8 [experts, outputs, inputs / 32, 16], two values a byte, first the low one
    scales: Stored  # U8 [experts, outputs, inputs / 32], exponents
    dtype: str = "F32"

    @property
    def path(self) -> Path:
        return self.blocks.path

    @property
    def shape(self) -> tuple[int, ...]:
        experts, outputs, groups = self.scales.shape
        return experts, groups * RUN, outputs

    def kept(self, part: tuple[slice, ...], device: torch.device) -> Mxfp4Matrix:
        """A part as it is; of the inputs, whole runs."""
        experts, inputs, outputs = part
        runs = slice(inputs.start // RUN, inputs.stop // RUN)
        values = self.blocks.read((experts, outputs, runs, slice(0, RUN // 2)), device)
        return Mxfp4Matrix(values.flatten(2), self.scales.read((experts, outputs, runs), device))

    def read(self, part: tuple[slice, ...], device: torch.device) -> Tensor:
        experts, inputs, outputs = part
        groups = slice(inputs.start // RUN, -(-inputs.stop // RUN))
        blocks = self.blocks.read((experts, outputs, groups, slice(0, 16)), device)
        exponents = self.scales.read((experts, outputs, groups), device)
        scales = exponents.view(torch.float8_e8m0fnu).float()[..., None]
        values = functional.embedding(blocks.int(), _byte_values(device))
        values = values.flatten(-2).mul_(scales).flatten(-2)
        skipped = groups.start * RUN
        return values[..., inputs.start - skipped : inputs.stop - skipped].mT


def _byte_values(device: torch.device) -> Tensor:
    """The two numbers of each byte, [256, 2]."""
    nibbles = torch.tensor([*_E2M1, *(-value for value in _E2M1)], device=device)
    byte = torch.arange(256, device=device)
    return nibbles[torch.stack((byte % 16, byte // 16), dim=-1)]


class _Weights(msgspec.Struct):
    num_bits: int = 0
    type: str = ""
    block_structure: tuple[Count, Count] | None = None


class _Group(msgspec.Struct):
    weights: _Weights | None = None


class _Fields(msgspec.Struct):
    """Of `quantization_config`."""

    quant_method: str = ""
    weight_block_size: tuple[Count, Count] | None = None
    config_groups: dict[str, _Group] = {}
    sparsity_config: dict[str, Any] | None = None
    transform_config: dict[str, Any] | None = None


def _compressed_tensors(config: ModelConfig, fields: _Fields) -> Quantization:
    weights = [group.weights or _Weights() for group in fields.config_groups.values()]
    sparse = (fields.sparsity_config or {}).get("format", "dense") != "dense"
    if sparse or fields.transform_config:
        raise _refusal(config, "compressed-tensors with sparsity or transforms")
    for weight in weights:
        if (weight.type, weight.num_bits) != ("float", 8):
            raise _refusal(config, f"compressed-tensors of {weight.num_bits} bits ({weight.type})")
    blocks = {weight.block_structure for weight in weights}
    if len(blocks) != 1:
        raise _refusal(config, f"compressed-tensors in {len(blocks)} ways")
    return Fp8(blocks.pop())


def _refusal(config: ModelConfig, what: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{config.path} has weights quantized by {what}, which are not read; use the model's"
        " original checkpoint (bfloat16) or one in fp8 (quant_method fp8, or compressed-tensors"
        " with 8-bit float weights)"
    )
