"""Log-mel features, equal to those of transformers' `WhisperFeatureExtractor` without torch.

That class needs a gigabyte for an hour, since it transforms everything at once. This one transforms
blocks, into the array that it returns.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pando_worker.audio.arrays import Features, Samples

_BLOCK = 1000  # frames that are transformed at once
_RANGE = 8.0  # powers of ten below the loudest that features distinguish


class FeatureExtractor:
    """
    Attributes:
        rate: samples a second that it takes
        window: frames that the model hears at once
        mel_bins: of a frame
        hop: samples from one frame to the next
    """

    def __init__(self, model_dir: Path) -> None:
        """
        Raises:
            Exception: whatever transformers raises for files that it cannot load.
        """
        from transformers import WhisperFeatureExtractor

        self._take(WhisperFeatureExtractor.from_pretrained(model_dir, local_files_only=True))

    def _take(self, extractor: Any) -> None:
        if extractor.dither:
            raise ValueError("its preprocessor_config.json has dither, which makes features random")
        self.rate: int = extractor.sampling_rate
        self.window: int = extractor.nb_max_frames
        self.mel_bins: int = extractor.feature_size
        self.hop: int = extractor.hop_length
        self._size: int = extractor.n_fft
        self._most_samples: int = extractor.n_samples
        self._hann = np.hanning(self._size + 1)[:-1]
        self._bands = _bands(extractor.mel_filters)

    def features(self, samples: Samples) -> Features:
        """Of the whole sound. What is shorter than a window is silent up to its end, as that of
        transformers' pipeline; what is longer has one frame for each `hop_length` samples."""
        if len(samples) < self._most_samples:
            samples = np.pad(samples, (0, self._most_samples - len(samples)))
        frames = len(samples) // self.hop
        padded = np.pad(samples, self._size // 2, mode="reflect")
        found = np.empty((self.mel_bins, frames), np.float32)
        for start in range(0, frames, _BLOCK):
            end = min(start + _BLOCK, frames)
            last = (end - 1) * self.hop + self._size
            found[:, start:end] = self._log_mel(padded[start * self.hop : last])
        np.maximum(found, found.max() - _RANGE, out=found)
        found += 4.0
        found /= 4.0
        return found

    def _log_mel(self, samples: Samples) -> Features:
        frames = sliding_window_view(samples, self._size)[:: self.hop] * self._hann
        spectrum = np.ascontiguousarray(np.fft.rfft(frames).T)  # [frequencies, frames]
        power = spectrum.real**2 + spectrum.imag**2
        mel = np.stack([(weights * power[band]).sum(axis=0) for band, weights in self._bands])
        logarithm: Features = np.log10(np.maximum(mel, 1e-10)).astype(np.float32)
        return logarithm


def _bands(filters: NDArray[np.float64]) -> list[tuple[slice, NDArray[np.float64]]]:
    """For each mel bin the frequencies that count and their weights, [n, 1].

    These are few, and a whole product would be one of BLAS: its threads wait by spinning, in each
    of several processes beside the engine.

    Args:
        filters: [frequencies, mel bins]
    """
    found = []
    for weights in filters.T:
        counted = np.flatnonzero(weights)
        band = slice(counted[0], counted[-1] + 1) if len(counted) else slice(0)
        found.append((band, weights[band, None]))
    return found
