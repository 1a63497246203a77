"""`Histories`: the tokens that penalised rows have had, kept on the device from step to step.

A batch brings the whole history of a row once, and from then on the token that each step adds.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import Int64, Penalties
from pando_worker.tensors.transfer import to_device


@dataclass(frozen=True, slots=True)
class History:
    """What some rows have had, padded to the longest."""

    tokens: Tensor  # int64 [n, longest]; `vocab_size` in the padding
    output: Tensor  # the same, and `vocab_size` in place of the prompts' tokens, too


class Histories:
    def __init__(self, rows: int, device: torch.device) -> None:
        """
        Args:
            rows: of the ReqToTokenPool
        """
        self._device = device
        self._tokens = torch.empty((0, 0), dtype=torch.int64, device=device)
        # Of each row of the ReqToTokenPool:
        self._lengths: Int64 = np.zeros(rows, dtype=np.int64)
        self._prompts: Int64 = np.zeros(rows, dtype=np.int64)

    @torch.inference_mode()
    def add(self, penalties: Penalties, tokens: Tensor, vocab_size: int) -> History:
        """Add what a step's rows have had since their last one; returns their whole histories.

        Args:
            tokens: int64 [m], `penalties.tokens` with those filled in that were not known
        """
        rows, token_row = penalties.rows, penalties.token_row
        counts = np.bincount(token_row, minlength=len(rows))
        begun = rows[penalties.begins]
        self._lengths[begun] = 0
        self._prompts[begun] = np.bincount(token_row, ~penalties.is_output, len(rows))[
            penalties.begins
        ]
        before = self._lengths[rows]
        # Each token's place in its row: after those of before, in the order of `tokens`.
        first = np.cumsum(counts) - counts
        place = np.arange(len(token_row)) - first[token_row] + before[token_row]
        lengths = before + counts
        self._lengths[rows] = lengths
        longest = int(lengths.max())
        self._make_room(int(rows.max()) + 1, longest)
        where = to_device(rows[token_row], self._device), to_device(place, self._device)
        self._tokens[where] = tokens

        on_device = to_device(rows, self._device)
        had = self._tokens[:, :longest].index_select(0, on_device)
        places = torch.arange(longest, device=self._device)
        had.masked_fill_(places >= to_device(lengths, self._device)[:, None], vocab_size)
        prompts = to_device(self._prompts[rows], self._device)[:, None]
        return History(had, had.masked_fill(places < prompts, vocab_size))

    def _make_room(self, rows: int, longest: int) -> None:
        held_rows, held = self._tokens.shape
        if rows <= held_rows and longest <= held:
            return
        rows = max(held_rows, min(len(self._lengths), 2 * rows))
        longest = max(held, 2 * longest)
        tokens = torch.zeros((rows, longest), dtype=torch.int64, device=self._device)
        tokens[:held_rows, :held] = self._tokens
        self._tokens = tokens
