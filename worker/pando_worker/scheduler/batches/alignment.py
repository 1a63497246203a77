"""The weights of alignment heads, made ready for dynamic time warping."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pando_worker.batch import Float32

_WIDTH = 7  # positions of the median


def smoothed(parts: Sequence[Float32]) -> Float32:
    """The mean over the heads of their weights, each normalised over the tokens and then smoothed
    over the positions: [tokens, positions].

    Args:
        parts: [heads, tokens, positions] each, of consecutive tokens
    """
    weights = np.concatenate(parts, axis=1)
    deviation = weights.std(axis=1, keepdims=True)
    # A position that no token attends to more than others says nothing.
    normed = (weights - weights.mean(axis=1, keepdims=True)) / np.where(deviation > 0, deviation, 1)
    mean: Float32 = _median(normed).mean(axis=0, dtype=np.float32)
    return mean


def _median(x: Float32) -> NDArray[np.float32]:
    """Over each position and its neighbours, reflected at both ends; unchanged if there are too few
    positions for that."""
    reach = _WIDTH // 2
    if x.shape[-1] <= reach:
        return x
    padded = np.pad(x, ((0, 0), (0, 0), (reach, reach)), mode="reflect")
    windows = [padded[..., i : i + x.shape[-1]].copy() for i in range(_WIDTH)]
    # A network of comparisons that leaves the median in the middle: whole arrays are compared, a
    # tenth of the time of sorting each window.
    for last in range(_WIDTH - 1, reach - 1, -1):
        for i in range(last):
            low = np.minimum(windows[i], windows[i + 1])
            np.maximum(windows[i], windows[i + 1], out=windows[i + 1])
            windows[i] = low
    return windows[reach]
