"""When each token is spoken: dynamic time warping over cross-attention, as in the Whisper paper and
transformers' `_extract_token_timestamps`."""

import numpy as np
from numpy.typing import NDArray

_POSITION_S = 0.02  # of an encoder's position


def token_times(weights: NDArray[np.float32]) -> list[float]:
    """Seconds from the window's beginning at which the model comes to each token: there the one
    before it ends.

    Args:
        weights: [tokens, positions], how much each token sees of each position, normalised; the
            last token of a window has no row, and gets the time of the one before

    Returns:
        One more time than rows; [0.0] if there are none.
    """
    if not weights.size:
        return [0.0]
    # A single row has no deviation, so its normalised weights are no numbers.
    rows, columns = warping_path(-np.nan_to_num(weights.astype(np.float64)))
    begins = np.concatenate([[True], np.diff(rows) > 0])
    times = [float(np.float32(column * _POSITION_S)) for column in columns[begins]]
    return [*times, times[-1]]


def warping_path(costs: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cheapest way from the first row and column to the last ones, that never goes back.

    Computes by diagonals, whose cells do not depend on each other. Of equal ways it takes the one
    of transformers' `_dynamic_time_warping`, which goes along a row.

    Returns:
        Row and column of each step.
    """
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    came = np.full((rows + 1, columns + 1), 2, np.int8)  # 0: both, 1: from the row before, 2: not
    total[0, 0] = 0
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, row, column = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        way = np.where(
            (both < row) & (both < column), 0, np.where((row < both) & (row < column), 1, 2)
        )
        least = np.choose(way, [both, row, column])
        total[i, j] = costs[i - 1, j - 1] + least
        came[i, j] = way
    came[:, 0], came[0, :] = 1, 2
    i, j = rows, columns
    path = []
    while i or j:
        path.append((i - 1, j - 1))
        way = came[i, j]
        i, j = i - (way != 2), j - (way != 1)
    found = np.array(path[::-1], np.int64)
    return found[:, 0], found[:, 1]
