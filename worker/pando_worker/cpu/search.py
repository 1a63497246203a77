"""`best_by`: finds the largest logit of each row with the kernels, in one pass."""

from collections.abc import Callable

import torch
from torch import Tensor

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
