"""`Surrogate`: a Gaussian process, which guesses a number of candidates that were not played from
those that were, and says how sure it is.

Its kernel is a linear part, as most fields push a number one way, and a smooth rest. How much each
coordinate counts is fitted, since a few fields decide and most hardly matter: among as many
candidates as a search plays, a distance that counted all of them alike would say little. The rest
is not. The method is in Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
algorithm 2.1 and chapter 5 (automatic relevance determination).
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LINEAR = 4.0  # variance of the linear part's weights; the rest has variance 1
SCALES = (0.1, 0.3, 1.0, 3.0)
"""How much a coordinate may count: its whole range is so many of the lengths over which the rest
changes."""
USUAL, DOUBT = 0.3, 0.5  # the scale without evidence, and how much of it another one needs
PASSES = 2  # over all coordinates
NOISE = 0.01  # variance of a run's chance


class Surrogate:
    def __init__(self, points: Array, numbers: Array, scales: Array) -> None:
        """
        Args:
            points: [num_points, num_coordinates], from the best one.
            numbers: [num_points]
            scales: [num_coordinates], as `fitted` finds them.
        """
        self._scales = scales
        self._points = points = points * scales
        self._mean, self._spread = numbers.mean(), numbers.std() + 1e-9
        covariance = _covariance(points)
        self._root = np.linalg.cholesky(covariance)
        scaled = (numbers - self._mean) / self._spread
        self._weights = np.linalg.solve(covariance, scaled)

    def guess(self, points: Array) -> tuple[Array, Array]:
        """Means and standard deviations at these points, each [num_points]."""
        points = points * self._scales
        across = _kernel(points, self._points)
        known = np.linalg.solve(self._root, across.T)
        variance = 1.0 + LINEAR * (points**2).sum(axis=1) - (known**2).sum(axis=0)
        means = across @ self._weights * self._spread + self._mean
        return means, np.sqrt(np.maximum(variance, 1e-9)) * self._spread


def fitted(points: Array, numbers: Array) -> Array:
    """The scales with which the numbers are likely, [num_coordinates]: one after the other is set
    to what is best with the others as they are."""
    scaled = (numbers - numbers.mean()) / (numbers.std() + 1e-9)
    scales = np.full(points.shape[1], USUAL)
    most = _likelihood(points, scaled, scales)
    for _ in range(PASSES):
        for place in range(len(scales)):
            for scale in SCALES:
                other = scales.copy()
                other[place] = scale
                likelihood = _likelihood(points, scaled, other)
                if likelihood > most:
                    scales, most = other, likelihood
    return scales


def _likelihood(points: Array, numbers: Array, scales: Array) -> float:
    """The logarithm of how likely numbers and scales are, but for a constant."""
    root = np.linalg.cholesky(_covariance(points * scales))
    white = np.linalg.solve(root, numbers)
    doubt = DOUBT * np.abs(np.log(scales / USUAL)).sum()
    return float(-white @ white / 2 - np.log(np.diag(root)).sum() - doubt)


def _covariance(points: Array) -> Array:
    covariance: Array = _kernel(points, points) + NOISE * np.eye(len(points))
    return covariance


def _kernel(left: Array, right: Array) -> Array:
    apart = ((left[:, None] - right[None]) ** 2).sum(axis=2)
    kernel: Array = LINEAR * left @ right.T + np.exp(-apart / 2)
    return kernel
