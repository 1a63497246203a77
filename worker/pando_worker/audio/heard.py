"""`Heard`: what becomes of a file of sound."""

import hashlib
from dataclasses import dataclass

import numpy as np

from pando_worker.audio.arrays import Features
from pando_worker.audio.pauses import SoundPiece
from pando_worker.reading.array_file import Array

FEATURES = "features"


@dataclass(frozen=True, slots=True)
class Heard:
    """A file as a model hears it.

    Attributes:
        seconds: its length
        frames: of features, a file shorter than a window being as long as one
        pieces: at which it may be cut
        digest: 16 bytes, of its features
        arrays: the features, [mel_bins, frames], by the name `FEATURES`
    """

    seconds: float
    frames: int
    pieces: tuple[SoundPiece, ...]
    digest: bytes
    arrays: dict[str, Array]

    def window(self, start: int, count: int, size: int) -> Features:
        """A copy of `count` frames from `start` on, and zeros up to `size`: [mel_bins, size]."""
        whole = self.arrays[FEATURES]
        found = np.zeros((whole.shape[0], size), np.float32)
        found[:, :count] = whole[:, start : start + count]
        return found

    def window_digest(self, start: int, count: int) -> bytes:
        """16 bytes, equal for equal windows of equal files."""
        place = f"{start} {count}".encode()
        return hashlib.blake2b(self.digest + place, digest_size=16).digest()


def digest_of(features: Features) -> bytes:
    digest = hashlib.blake2b(f"{features.shape}".encode(), digest_size=16)
    digest.update(features.data)
    return digest.digest()
