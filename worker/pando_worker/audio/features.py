"""Log-mel features, equal to those of transformers' `WhisperFeatureExtractor`.

That class needs a gigabyte for an hour, since it transforms everything at once. This one transforms
blocks, into the array that it returns.
"""

from pathlib import Path
from typing import Any

import numpy as np

from pando_worker.audio.arrays import Features, Samples

_BLOCK = 3000  # frames that are transformed at once
_RANGE = 8.0  # powers of ten below the loudest that features distinguish


def use_one_thread() -> None:
    """In this process, from now on. Several processes read files, beside the engine, whose threads
    want the cores. Measured for half a minute of sound on two busy cores: 72 ms of CPU time with
    two threads, which wait for each other by spinning, and 18 with one."""
    import torch

    torch.set_num_threads(1)


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
        import torch

        if extractor.dither:
            raise ValueError("its preprocessor_config.json has dither, which makes features random")
        self.rate: int = extractor.sampling_rate
        self.window: int = extractor.nb_max_frames
        self.mel_bins: int = extractor.feature_size
        self.hop: int = extractor.hop_length
        self._size: int = extractor.n_fft
        self._most_samples: int = extractor.n_samples
        self._filters = torch.from_numpy(extractor.mel_filters).to(torch.float32).T.contiguous()

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
        import torch

        window = torch.hann_window(self._size)
        spectrum = torch.stft(
            torch.from_numpy(samples),
            self._size,
            self.hop,
            window=window,
            center=False,
            return_complex=True,
        )
        power = (spectrum.abs() ** 2).contiguous()
        logarithm: Features = torch.clamp(self._filters @ power, min=1e-10).log10().numpy()
        return logarithm
