"""`TextParts`: runs parts of a step's texts beside each other on a CPU, each on one thread.

Torch divides the work of each operator among threads, which then wait for the slowest of them. A
text encoder has dozens of short operators, and threads that sleep while they wait take longer to
wake up than some of these take to run. Texts see nothing of each other, so parts of them need to
wait for each other only at the end of the step.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from threading import Barrier

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LEAST_TOKENS = 128  # of a part: each part reads all matrices
UNEQUAL = 1.2  # the tokens of the longest part over those of equal ones, at most


class TextParts:
    """Threads, each of which runs torch's operators alone."""

    def __init__(self, threads: int) -> None:
        """
        Args:
            threads: that torch uses in the calling thread
        """
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="texts")
        started = Barrier(threads)
        wait([self._pool.submit(_use_one_thread, started) for _ in range(threads)])
        torch.set_num_threads(threads)  # what threads that start later use, too

    def run(self, parts: list[slice], encode: Callable[[int, slice], Tensor]) -> list[Tensor]:
        """What `encode` makes of each part; it gets the part's number, and its texts."""
        running = [self._pool.submit(encode, *numbered) for numbered in enumerate(parts)]
        wait(running)  # also behind an error: a part must not run into the next step
        return [one.result() for one in running]


def equal_parts(lengths: NDArray[np.int32], most: int) -> list[slice]:
    """Adjacent texts, by their tokens in `most` about equal parts; or one part of all texts, where
    there would be few tokens in each or where some would have many more than others.

    Args:
        lengths: of texts, in tokens
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1])
    if most > 1 and total >= most * LEAST_TOKENS:
        wanted = total * np.arange(1, most) / most
        cuts = np.searchsorted(ends - lengths / 2, wanted).tolist()
        bounds = [0, *cuts, len(lengths)]
        sizes = np.diff(np.concatenate(([0], ends))[bounds])
        if sizes.min() > 0 and sizes.max() <= UNEQUAL * total / most:
            return [slice(*each) for each in pairwise(bounds)]
    return [slice(0, len(lengths))]


def _use_one_thread(started: Barrier) -> None:
    torch.get_num_threads()  # torch gives each thread the common number when it is first asked
    torch.set_num_threads(1)
    started.wait()  # so that each thread gets one such call
