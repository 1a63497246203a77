"""Cuts a long file where it is quiet, so that its pieces can be heard at once.

A piece is at most as long as the window that a model hears. Each ends at the quietest moment of its
second half, so a cut is in a pause between words where there is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pando_worker.audio.arrays import Features

_PAUSE = 40  # frames (0.4 s) over which quiet is measured


@dataclass(frozen=True, slots=True)
class SoundPiece:
    """Frames of a file."""

    start: int
    end: int


def pieces_of(loudness: NDArray[np.float32], window: int) -> list[SoundPiece]:
    """
    Args:
        loudness: [frames], as of `loudness_of`
        window: frames of a piece at most
    """
    quiet = _smoothed(loudness)
    found, start = [], 0
    while len(loudness) - start > window:
        first = start + window // 2
        end = first + int(np.argmin(quiet[first : start + window])) + 1
        found.append(SoundPiece(start, end))
        start = end
    return [*found, SoundPiece(start, len(loudness))]


def loudness_of(features: Features) -> NDArray[np.float32]:
    """Of each frame: the mean of its features, which are logarithms. [frames]"""
    mean: NDArray[np.float32] = features.mean(axis=0)
    return mean


def _smoothed(loudness: Sequence[float] | NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean of the frames around each, by which a pause beats a short gap within a word."""
    wide = np.pad(np.asarray(loudness, np.float64), _PAUSE // 2, mode="edge")
    sums = np.concatenate([[0.0], np.cumsum(wide)])
    around: NDArray[np.float64] = (sums[_PAUSE:] - sums[:-_PAUSE])[: len(loudness)]
    return around
