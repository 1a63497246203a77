"""`FutureTokens`: the last token of every running request, on the device.

The scheduler plans a step before it knows the tokens of the one before, and writes `-1 - row` for
them. Steps run in order, so when such a step runs, the token of that row of the ReqToTokenPool is
here.
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
        """`ids`, [n], on the device, with the tokens in place of `-1 - row`."""
        device, unknown = self._last.device, np.flatnonzero(ids < 0)
        if not len(unknown):
            return to_device(ids, device)
        found = self._last.index_select(0, to_device(-1 - ids[unknown], device))
        if len(unknown) == len(ids):
            return found
        return to_device(ids, device).index_copy(0, to_device(unknown, device), found)

    @torch.inference_mode()
    def resolve_on_device(self, ids: Tensor) -> Tensor:
        """As `resolve`, of ids that are there already: the same kernels whatever is unknown."""
        known = self._last.index_select(0, (-1 - ids).clamp_(min=0))
        return torch.where(ids < 0, known, ids)

    @torch.inference_mode()
    def put(self, rows: Int64, tokens: Tensor) -> None:
        """Keep what the rows of the ReqToTokenPool yielded, both [n].

        A row that yielded none (-1) runs on with token 0 until the scheduler has seen it and ends
        its request: what it computes is thrown away, but it must be a token.
        """
        self._last.index_copy_(0, to_device(rows, self._last.device), tokens.clamp(min=0))
