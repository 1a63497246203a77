"""`MaskThreads`: fills the masks of a batch on several threads.

With 131,072 tokens the masks of 64 rows take 1 to 38 ms on one core, which can exceed a GPU's step.
llguidance's threads share the work evenly and do not hold the GIL.
"""

from collections.abc import Sequence

import numpy as np
from llguidance import LLExecutor
from numpy.typing import NDArray

from pando_worker.grammar.grammar import Grammar

# Fewer masks than this are filled before another thread wakes up.
_WORTH_WAKING = 4


class MaskThreads:
    def __init__(self, threads: int) -> None:
        self._executor = LLExecutor(num_threads=threads) if threads > 1 else None

    def fill(self, grammars: Sequence[tuple[Grammar, int]], mask: NDArray[np.int32]) -> None:
        """Call `Grammar.fill_mask` for each pair of a grammar and its row of the mask.

        Args:
            mask: [rows, ceil(vocab_size / 32)], contiguous; other rows are unchanged
        """
        if self._executor is None or len(grammars) < _WORTH_WAKING:
            for grammar, row in grammars:
                grammar.fill_mask(mask[row])
            return
        rows, words = mask.shape
        matchers = [(grammar.matcher, row) for grammar, row in grammars]
        self._executor.unsafe_compute_mask_ptr(
            matchers, mask.ctypes.data, words * mask.itemsize, rows
        )
        for grammar, row in grammars:
            grammar.forbid_if_failed(mask[row])
