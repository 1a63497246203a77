"""Sounds made here, and files of them."""

import io
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

RATE = 16_000
Wave = NDArray[np.float32]


def chirp(seconds: float, rate: int = RATE, *, low: float = 200.0, high: float = 3000.0) -> Wave:
    """A tone that rises, with a pause of 0.2 s in each second. [samples]"""
    time = np.arange(int(seconds * rate)) / rate
    phase = 2 * np.pi * (low * time + (high - low) / (2 * max(seconds, 0.1)) * time**2)
    wave = 0.5 * np.sin(phase) * (time % 1.0 < 0.8)
    return wave.astype(np.float32)


def noise(seconds: float, seed: int = 0) -> Wave:
    count = int(seconds * RATE)
    return (0.1 * np.random.default_rng(seed).standard_normal(count)).astype(np.float32)


def encoded(
    wave: Wave, form: str, codec: str, *, rate: int = RATE, layout: str = "mono", **options: str
) -> bytes:
    """A file of a wave, which each channel has.

    Args:
        form: of FFmpeg: "wav", "flac", "ogg", "mp3", "mp4", "webm"
    """
    file = io.BytesIO()
    with av.open(file, "w", format=form) as container:
        stream: Any = container.add_stream(codec, rate=rate, layout=layout, options=options)
        channels = stream.layout.nb_channels
        frame = av.AudioFrame.from_ndarray(np.tile(wave, (channels, 1)), "fltp", layout)
        frame.sample_rate = rate
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
    return file.getvalue()


def wav(wave: Wave, *, rate: int = RATE) -> bytes:
    """16 bits a sample."""
    return encoded(wave, "wav", "pcm_s16le", rate=rate)
