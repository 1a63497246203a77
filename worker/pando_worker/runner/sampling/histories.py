"""`Histories`: the earlier tokens of rows with penalties, kept on the device between steps.

A batch contains a row's whole history once, and after that only the tokens that each step adds.
Room for the longest request in each row is taken at the first penalty: `most_bytes`, which the KV
pool leaves free on a GPU (`kv_budget.py`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import Int64, Penalties
from pando_worker.tensors.transfer import to_device

_TOKEN_BYTES = 4  # int32


def most_bytes(rows: int, longest: int) -> int:
    """Device memory that histories take at most, in bytes.

    Args:
        longest: tokens that a request may have
    """
    return rows * longest * _TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class History:
    """The earlier tokens of n rows with penalties."""

    tokens: Tensor  # int32 [rows, longest], of all rows of the ReqToTokenPool
    rows: Int64  # [n]
    lengths: Int64  # [n]
    prompts: Int64  # [n], how many of these tokens are the prompt's
    vocab_size: int

    def part(self, part: slice) -> tuple[Tensor, Tensor]:
        """The tokens of some of the rows, int64 [count, their longest], with `vocab_size` in the
        padding; and the same with `vocab_size` in place of the prompts' tokens, too."""
        lengths, device = self.lengths[part], self.tokens.device
        longest = int(lengths.max())
        rows = to_device(self.rows[part], device)
        had = self.tokens[:, :longest].index_select(0, rows).long()
        places = torch.arange(longest, device=device)
        had.masked_fill_(places >= to_device(lengths, device)[:, None], self.vocab_size)
        prompts = to_device(self.prompts[part], device)[:, None]
        return had, had.masked_fill(places < prompts, self.vocab_size)


class Histories:
    def __init__(self, rows: int, longest: int, device: torch.device) -> None:
        """
        Args:
            rows: number of rows of the ReqToTokenPool
            longest: tokens that a request may have
        """
        self._device = device
        self._longest = longest
        self._tokens: Tensor | None = None
        # For each row of the ReqToTokenPool:
        self._lengths: Int64 = np.zeros(rows, dtype=np.int64)
        self._prompts: Int64 = np.zeros(rows, dtype=np.int64)

    @property
    def num_bytes(self) -> int:
        """Of the device's memory."""
        return 0 if self._tokens is None else self._tokens.nbytes

    @torch.inference_mode()
    def add(self, penalties: Penalties, tokens: Tensor, vocab_size: int) -> History:
        """Append a step's new tokens to its rows' histories; returns the whole histories.

        Args:
            tokens: int64 [m], `penalties.tokens` with unknown ones filled in
        """
        rows, token_row = penalties.rows, penalties.token_row
        counts = np.bincount(token_row, minlength=len(rows))
        begun = rows[penalties.begins]
        self._lengths[begun] = 0
        self._prompts[begun] = np.bincount(token_row, ~penalties.is_output, len(rows))[
            penalties.begins
        ]
        before = self._lengths[rows]
        # Each token's position in its row: after the earlier ones, in the order of `tokens`.
        first = np.cumsum(counts) - counts
        place = np.arange(len(token_row)) - first[token_row] + before[token_row]
        lengths = before + counts
        self._lengths[rows] = lengths
        if self._tokens is None:
            shape = len(self._lengths), self._longest
            self._tokens = torch.empty(shape, dtype=torch.int32, device=self._device)
        where = to_device(rows[token_row], self._device), to_device(place, self._device)
        self._tokens[where] = tokens.int()
        return History(self._tokens, rows, lengths, self._prompts[rows], vocab_size)
