"""`Surrogate`: a Gaussian process, which guesses a number of candidates that were not played from
those that were, and says how sure it is.

Its kernel is a linear part, as most fields push a number one way, and a smooth rest. Nothing of it
is fitted, since that would cost seconds for each choice. The method is in Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, algorithm 2.1.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LINEAR = 4.0  # variance of the linear part's weights; the rest has variance 1
LENGTH = 0.6  # distance over which the rest changes, where a field's whole range is 1
NOISE = 0.01  # variance of a run's chance


class Surrogate:
    def __init__(self, points: Array, numbers: Array) -> None:
        """
        Args:
            points: [num_points, num_coordinates], from the best one.
            numbers: [num_points]
        """
        self._points = points
        self._mean, self._spread = numbers.mean(), numbers.std() + 1e-9
        covariance = _kernel(points, points) + NOISE * np.eye(len(points))
        self._root = np.linalg.cholesky(covariance)
        scaled = (numbers - self._mean) / self._spread
        self._weights = np.linalg.solve(covariance, scaled)

    def guess(self, points: Array) -> tuple[Array, Array]:
        """Means and standard deviations at these points, each [num_points]."""
        across = _kernel(points, self._points)
        known = np.linalg.solve(self._root, across.T)
        variance = 1.0 + LINEAR * (points**2).sum(axis=1) - (known**2).sum(axis=0)
        means = across @ self._weights * self._spread + self._mean
        return means, np.sqrt(np.maximum(variance, 1e-9)) * self._spread


def _kernel(left: Array, right: Array) -> Array:
    apart = ((left[:, None] - right[None]) ** 2).sum(axis=2)
    kernel: Array = LINEAR * left @ right.T + np.exp(-apart / (2 * LENGTH**2))
    return kernel
