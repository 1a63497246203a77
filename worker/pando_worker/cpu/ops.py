"""`CpuOps`: a model's operations, on the C++ kernels where they are faster, else on torch."""

from collections.abc import Mapping
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.cpu.kernels import Kernels
from pando_worker.models.grouped import RUN, Groups
from pando_worker.models.lora.linear import LoraSite, LoraTokens
from pando_worker.models.mixture import FusedExperts
from pando_worker.models.ops import Angles, SumNorm, TorchOps

SILU, GELU = 0, 1  # as in kernels.cpp
NUMBERS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}  # as there, of weights


class CpuOps:
    """`Ops` for float32 on the CPU. Weights may be float32, bfloat16 or float16.

    Args:
        linear_rows: for each shape of a weight, the most rows for which a linear layer runs in the
            kernel. Above it torch is faster: with the many rows of a prompt, packing the weights,
            which the kernel does not do, pays off.
        other_rows: the same for all other shapes
        narrow_rows: the same for weights of 16 bits, which torch has to widen for each product
    """

    fused_experts: FusedExperts | None = None
    sum_norm: SumNorm | None = None

    def __init__(
        self,
        kernels: Kernels,
        threads: int,
        linear_rows: Mapping[tuple[int, ...], int],
        other_rows: int = 0,
        narrow_rows: int = 0,
    ) -> None:
        self._linear_rows, self._other_rows = linear_rows, other_rows
        self._narrow_rows = narrow_rows
        self._threads = threads
        self._plain = TorchOps()
        self._kernels = kernels
        self._sites: dict[LoraSite, NDArray[np.int64]] = {}

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        most = self._linear_rows.get(weight.shape, self._other_rows)
        if weight.dtype != torch.float32:
            most = self._narrow_rows
        if len(x) > most or x.dim() != 2 or not x.is_contiguous():
            return self._plain.linear(x, weight, bias)
        return self.product(x, weight, bias)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`linear` in the kernel; x is [rows, in] and contiguous."""
        rows, (width, inner) = len(x), weight.shape
        out = torch.empty(rows, width)
        self._kernels.linear(
            x.data_ptr(),
            inner,
            weight.data_ptr(),
            None if bias is None else bias.data_ptr(),
            out.data_ptr(),
            rows,
            width,
            inner,
            NUMBERS[weight.dtype],
            self._threads,
        )
        return out

    def add_lora(self, y: Tensor, x: Tensor, site: LoraSite, step: LoraTokens) -> None:
        """In the kernels, for any number of tokens."""
        x = x if x.stride(-1) == 1 else x.contiguous()
        constants = self._constants(site)
        tokens = (step.tokens.data_ptr(), step.slots.data_ptr(), step.count.data_ptr())
        h = torch.empty(len(step.tokens), len(site.sections), site.memory.most_rank)
        self._kernels.lora_shrink(
            constants, x.data_ptr(), x.stride(0), *tokens, h.data_ptr(), self._threads
        )
        self._kernels.lora_expand(
            constants, h.data_ptr(), *tokens, y.data_ptr(), y.stride(0), y.shape[1], self._threads
        )

    def _constants(self, site: LoraSite) -> int:
        """The address of a `LoraSite` of lora.h."""
        if site not in self._sites:
            memory = site.memory
            columns = ((section.first_output, section.width) for section in site.sections)
            numbers = [
                memory.pages.data_ptr(),
                memory.page_numbers,
                memory.slot_pages.data_ptr(),
                memory.slot_pages.shape[1],
                memory.ranks.data_ptr(),
                memory.scales.data_ptr(),
                memory.starts.data_ptr(),
                memory.ranks.shape[1],
                site.first,
                memory.most_rank,
                site.sections[0].depth,
                int(memory.dtype == torch.bfloat16),
                site.experts,
                len(site.sections),
            ]
            self._sites[site] = np.array([*numbers, *chain.from_iterable(columns)], dtype=np.int64)
        return self._sites[site].ctypes.data

    def expert_linear(self, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        return self._plain.expert_linear(x, weight, ends)

    def grouped_linear(self, x: Tensor, weight: Groups, bias: Tensor | None = None) -> Tensor:
        """Also quantizes x, to bytes with one scale per 32 inputs."""
        x = x if x.stride(-1) == 1 else x.contiguous()
        rows, inner = x.shape
        group = weight.grouping.group
        runs, groups = -(-inner // RUN), weight.grouping.groups(inner)
        values = torch.empty(rows, runs * RUN, dtype=torch.int8)
        scales, sums = torch.empty(rows, runs), torch.empty(rows, groups)
        self._kernels.quantize(
            x.data_ptr(),
            x.stride(0),
            rows,
            inner,
            group,
            values.data_ptr(),
            scales.data_ptr(),
            sums.data_ptr(),
            self._threads,
        )
        out = torch.empty(rows, weight.rows)
        self._kernels.grouped_linear(
            values.data_ptr(),
            scales.data_ptr(),
            sums.data_ptr(),
            *_addresses(weight),
            None if bias is None else bias.data_ptr(),
            out.data_ptr(),
            weight.rows,
            rows,
            weight.rows,
            inner,
            self._threads,
        )
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, offset: bool = False) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        size = x.shape[-1]
        rows, shift = x.numel() // size, float(offset)
        self._kernels.rms_norm(
            x.data_ptr(), size, weight.data_ptr(), shift, out.data_ptr(), rows, size, eps
        )
        return out

    def add_rms_norm(
        self, x: Tensor, added: Tensor, weight: Tensor, eps: float, offset: bool = False
    ) -> tuple[Tensor, Tensor]:
        x, added = x.contiguous(), added.contiguous()
        rows, size = x.shape
        self._kernels.add_rms_norm(
            x.data_ptr(),
            added.data_ptr(),
            weight.data_ptr(),
            float(offset),
            added.data_ptr(),
            rows,
            size,
            eps,
        )
        return x, added

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        size = x.shape[-1]
        self._kernels.layer_norm(
            x.data_ptr(),
            weight.data_ptr(),
            None if bias is None else bias.data_ptr(),
            out.data_ptr(),
            x.numel() // size,
            size,
            eps,
            self._threads,
        )
        return out

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        self._kernels.add(x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel(), self._threads)
        return out

    def gelu(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        self._kernels.gelu(x.data_ptr(), out.data_ptr(), x.numel(), self._threads)
        return out

    def gated(self, gate_up: Tensor, gelu: bool = False) -> Tensor:
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty(rows, width)
        activation = GELU if gelu else SILU
        self._kernels.gated(
            gate_up.data_ptr(), out.data_ptr(), rows, width, activation, self._threads
        )
        return out

    def embedding(self, ids: Tensor, weight: Tensor) -> Tensor:
        tokens, (rows, width) = len(ids), weight.shape
        out = torch.empty(tokens, width)
        table, numbers = weight.data_ptr(), NUMBERS[weight.dtype]
        self._kernels.embed(ids.data_ptr(), table, out.data_ptr(), tokens, rows, width, numbers)
        return out

    def grouped_embedding(self, ids: Tensor, weight: Groups) -> Tensor:
        out = torch.empty(len(ids), weight.columns)
        self._kernels.grouped_embed(
            ids.data_ptr(),
            *_addresses(weight),
            out.data_ptr(),
            len(ids),
            weight.rows,
            weight.columns,
        )
        return out

    def angles(
        self, positions: Tensor, frequencies: Tensor, scale: float, dtype: torch.dtype
    ) -> Angles:
        if positions.dim() == 2:
            return self._plain.angles(positions, frequencies, scale, dtype)
        tokens, half = len(positions), len(frequencies)
        cos, sin = torch.empty(tokens, 1, 2 * half), torch.empty(tokens, 1, 2 * half)
        self._kernels.angles(
            positions.data_ptr(),
            frequencies.data_ptr(),
            scale,
            cos.data_ptr(),
            sin.data_ptr(),
            tokens,
            half,
        )
        return cos, sin

    def table(self, angles: Angles) -> Tensor | None:
        return None

    def rotate(self, x: Tensor, angles: Angles) -> Tensor:
        tokens, heads, dim = x.shape
        if x.stride(2) != 1 or x.stride(1) != dim:
            return self._plain.rotate(x, angles)
        cos, sin = angles
        out = torch.empty(tokens, heads, dim)
        self._kernels.rotate(
            x.data_ptr(),
            x.stride(0),
            cos.data_ptr(),
            sin.data_ptr(),
            out.data_ptr(),
            tokens,
            heads,
            dim,
        )
        return out


def _addresses(weight: Groups) -> tuple[int | None, ...]:
    """A weight as kernel arguments: addresses, bits, group, and whether scales have 16 bits."""
    minimums = weight.minimums
    return (
        weight.values.data_ptr(),
        weight.scales.data_ptr(),
        None if minimums is None else minimums.data_ptr(),
        weight.grouping.bits,
        weight.grouping.group,
        int(weight.grouping.numbers == torch.float16),
    )
