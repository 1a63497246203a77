"""Least squares with non-negative coefficients, for a handful of unknowns."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fit(features: Floats, observed: Floats, known: Floats | None = None) -> Floats:
    """The coefficients, each zero or more, with the least squared *relative* error.

    Solves every subset of the unknowns without the bound, and takes the best solution that
    satisfies it: exact, and quick for up to ten unknowns. A feature that no observation has gets 0.

    Args:
        features: [observations, unknowns]
        observed: [observations], each above 0
        known: [observations], the part of each that needs no coefficient
    """
    rows = features / observed[:, None]
    # Coefficients differ by nine orders of magnitude; columns of equal length preserve digits.
    lengths = np.linalg.norm(rows, axis=0)
    present = [column for column, length in enumerate(lengths) if length > 0]
    scaled = rows / np.where(lengths > 0, lengths, 1.0)
    target = np.ones(len(observed)) if known is None else 1.0 - known / observed
    best, least = np.zeros(features.shape[1]), float(target @ target)
    for size in range(1, len(present) + 1):
        for chosen in combinations(present, size):
            columns = scaled[:, chosen]
            solution = np.linalg.lstsq(columns, target, rcond=None)[0]
            error = float(np.sum((columns @ solution - target) ** 2))
            if solution.min() >= 0 and error < least * (1 - 1e-9):
                best, least = np.zeros(features.shape[1]), error
                best[list(chosen)] = solution
    return best / np.where(lengths > 0, lengths, 1.0)
