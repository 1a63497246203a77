"""Passes over the logits of a step with the kernels, one pass each, for the sampler."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import Int32
from pando_worker.cpu.kernels import Kernels


def best_by(kernels: Kernels, threads: int) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """A `Best` for the sampler."""

    def best(logits: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.contiguous()
        rows, width = logits.shape
        values, tokens = torch.empty(rows), torch.empty(rows, dtype=torch.int64)
        kernels.best(
            logits.data_ptr(),
            width,
            values.data_ptr(),
            tokens.data_ptr(),
            rows,
            width,
            threads,
        )
        return values, tokens

    return best


def totals_by(kernels: Kernels, threads: int) -> Callable[[Tensor], Tensor]:
    """The sampler's `Totals`."""

    def totals(logits: Tensor) -> Tensor:
        logits = logits.contiguous()
        rows, width = logits.shape
        found = torch.empty(rows)
        kernels.totals(logits.data_ptr(), width, found.data_ptr(), rows, width, threads)
        return found

    return totals


def forbid_by(kernels: Kernels, threads: int) -> Callable[[Tensor, Int32], None]:
    """The sampler's `Forbid`, for rows whose logits lie one after the other."""

    def forbid(logits: Tensor, mask: Int32) -> None:
        rows, width = logits.shape
        assert logits.stride(1) == 1
        assert mask.shape == (rows, -(-width // 32)), (mask.shape, logits.shape)
        mask = np.ascontiguousarray(mask)
        kernels.forbid(
            logits.data_ptr(),
            logits.stride(0),
            mask.ctypes.data,
            mask.shape[1],
            rows,
            width,
            threads,
        )

    return forbid
