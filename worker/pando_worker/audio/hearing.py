"""A file to features, in the processes of a `ReadingPool`."""

from dataclasses import dataclass
from pathlib import Path

from pando_worker.audio.features import FeatureExtractor
from pando_worker.audio.files import AudioLimits, samples_of
from pando_worker.audio.heard import FEATURES, Heard, digest_of
from pando_worker.audio.pauses import loudness_of, pieces_of
from pando_worker.reading.array_file import StoredRead, store
from pando_worker.reading.pool import is_cancelled
from pando_worker.reading.torchless import without_torch


@dataclass(frozen=True, slots=True)
class FeatureForm:
    """What the HTTP process needs to know of a model's feature extractor.

    Attributes:
        window: frames that the model hears at once
        frames_per_s: of features
    """

    window: int
    frames_per_s: float


def load(model_dir: Path) -> None:
    """Prepare this process, which has not imported torch. Raises as `FeatureExtractor` does."""
    global _extractor
    with without_torch():
        _extractor = FeatureExtractor(model_dir)


def known() -> FeatureForm:
    """Runs in a process once `load` has."""
    assert _extractor is not None
    return FeatureForm(_extractor.window, _extractor.rate / _extractor.hop)


def hear(path: Path, data: bytes, limits: AudioLimits, number: int) -> list[StoredRead[Heard]]:
    """One file.

    Args:
        path: of an `ArrayFile`
        number: of this read, as of `ReadingPool.cancellable`

    Raises:
        AudioError: it is not sound, or too much of it, or the read was cancelled.
    """
    assert _extractor is not None
    samples = samples_of(data, _extractor.rate, limits, lambda: is_cancelled(number))
    features = _extractor.features(samples)
    heard = Heard(
        seconds=len(samples) / _extractor.rate,
        frames=features.shape[1],
        pieces=tuple(pieces_of(loudness_of(features), _extractor.window)),
        digest=digest_of(features),
        arrays={FEATURES: features},
    )
    return store(path, [heard])


_extractor: FeatureExtractor | None = None  # of this process
