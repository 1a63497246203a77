"""`FutureTokens`: the last token of every running request, on the device.

The scheduler plans a step before it knows the previous step's tokens, and writes `-1 - row` for
them. Steps run in order, so when such a step runs, the token of that row of the ReqToTokenPool is
stored here.
"""

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import Int64
from pando_worker.tensors.transfer import to_device


class FutureTokens:
    def __init__(self, rows: int, device: torch.device) -> None:
        self._last = torch.zeros(rows, dtype=torch.int64, device=device)

    @torch.inference_mode()
    def resolve(self, ids: Int64) -> Tensor:
        """`ids`, [n], on the device, with `-1 - row` replaced by the row's token."""
        device, unknown = self._last.device, np.flatnonzero(ids < 0)
        if not len(unknown):
            return to_device(ids, device)
        found = self._last.index_select(0, to_device(-1 - ids[unknown], device))
        if len(unknown) == len(ids):
            return found
        return to_device(ids, device).index_copy(0, to_device(unknown, device), found)

    @torch.inference_mode()
    def resolve_on_device(self, ids: Tensor) -> Tensor:
        """Like `resolve`, for ids on the device; runs the same kernels for any number of
        unknowns."""
        known = self._last.index_select(0, (-1 - ids).clamp_(min=0))
        return torch.where(ids < 0, known, ids)

    @torch.inference_mode()
    def put(self, rows: Int64, tokens: Tensor) -> None:
        """Store the tokens, [n], that rows of the ReqToTokenPool, [n], yielded.

        A row without a token (-1) continues with token 0, which is a valid id, until the scheduler
        ends its request; the results are discarded.
        """
        self._last.index_copy_(0, to_device(rows, self._last.device), tokens.clamp(min=0))
