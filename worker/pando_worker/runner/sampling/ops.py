"""`SamplingOps`: what a device computes on logits with code of its own; all else is torch's."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from pando_worker.batch import Int32

Best = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Of logits [rows, vocab_size]: the largest of each row, [rows], NaN if the row has one, and the
first token with it, int64 [rows]."""

Nucleus = Callable[[Tensor, Tensor], Tensor]
"""Of weights [rows, vocab_size], of which the largest is 1: the lowest weight, float32 [rows], in
the smallest set of tokens that holds a share, [rows] in (0, 1), of the sum."""

Draw = Callable[[Tensor, Tensor], Tensor]
"""`sampler.sample`, of logits [rows, vocab_size] and, float64 [5, rows], of each row's temperature,
top_k, top_p, min_p and random number."""

Totals = Callable[[Tensor], Tensor]
"""`logsumexp` of each row of logits [rows, vocab_size], [rows]."""

Forbid = Callable[[Tensor, Int32], None]
"""Adds -inf, in place, to the logits [rows, vocab_size] that a mask forbids, as of
`edits.apply_mask`."""


@dataclass(frozen=True, slots=True)
class SamplingOps:
    """A device's own operations; None: torch's.

    Attributes:
        draw: takes the place of best and nucleus
    """

    best: Best | None = None
    nucleus: Nucleus | None = None
    draw: Draw | None = None
    totals: Totals | None = None
    forbid: Forbid | None = None


BY_TORCH = SamplingOps()
