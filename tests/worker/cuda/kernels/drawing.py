"""What a token drawn by temperature, top-k, top-p and min-p must be: by sorting, in float64."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def drawn(logits: NDArray[np.float64], limits: Sequence[float], least: float = 0.0) -> int:
    """-1 if none can be drawn.

    Args:
        limits: temperature, top_k, top_p, min_p and a number in [0, 1)
        least: a smaller weight counts as 0, as in float32
    """
    temperature, top_k, top_p, min_p, uniform = limits
    if np.isnan(logits).any() or not np.isfinite(best := logits.max()):
        return -1
    if temperature == 0:
        return int(logits.argmax())
    weights = np.exp((logits - best) / temperature)
    weights[weights < least] = 0
    if 0 < top_k < len(logits):
        weights[logits < np.sort(logits)[-int(top_k)]] = 0
    if top_p < 1:
        ordered = np.sort(weights)[::-1]
        enough = ordered.cumsum() >= top_p * ordered.sum()
        weights[weights < ordered[enough.argmax()]] = 0
    weights[weights < min_p] = 0
    held = weights.cumsum()
    return int(np.flatnonzero((held > uniform * held[-1]) & (weights > 0))[0])
