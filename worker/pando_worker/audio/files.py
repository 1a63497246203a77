"""Bytes of a file to samples, with bounds on all that they cost, by PyAV.

A file may claim anything about itself, so nothing is believed but what is decoded. Only containers
that hold all their data are read, by the first bytes: FFmpeg has others that name further files or
URLs. FFmpeg's resampler converts rates; of several channels the mean counts, which unlike its own
mix of floats is never louder than they are.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pando_worker.audio.arrays import Samples
from pando_worker.audio.errors import AudioError
from pando_worker.reading.cpu_time import CpuTimeError, bounded_cpu_time
from pando_worker.reading.memory import bounded_memory

ACCEPTED = "WAV, FLAC, Ogg, MP3, MP4, M4A or WebM"
_CODECS = frozenset(["aac", "alac", "flac", "mp3", "opus", "vorbis"])
_MOST_RATE = 384_000  # samples a second, of those that are accepted
_MOST_CHANNELS = 32
_MOST_CPU_S = 60.0  # of a file
_MEMORY = 2 * 2**30  # that a file may take in its process, beside its samples
_LOUDEST = 1e6  # a sample of a file of floats; beyond, features would not be numbers


@dataclass(frozen=True, slots=True)
class AudioLimits:
    max_bytes: int  # of a file as sent
    max_seconds: float


def samples_of(
    data: bytes, rate: int, limits: AudioLimits, is_cancelled: Callable[[], bool]
) -> Samples:
    """All samples of the first stream of sound in a file.

    Args:
        rate: samples a second of the result
        is_cancelled: asked between frames

    Raises:
        AudioError: not a file that is accepted, damaged, too long, without sound; or cancelled.
    """
    if len(data) > limits.max_bytes:
        raise AudioError(f"has {len(data)} bytes; this worker accepts {limits.max_bytes}")
    form = _format(data)
    import av  # here: only the processes that read sound need FFmpeg in memory

    try:
        with bounded_cpu_time(_MOST_CPU_S), bounded_memory(_MEMORY):
            most = int(limits.max_seconds * rate)
            samples = _joined(_decoded(data, form, rate), most, is_cancelled)
    except CpuTimeError as error:
        raise AudioError(f"takes more than {_MOST_CPU_S:g} s to decode") from error
    except MemoryError as error:
        raise AudioError("takes too much memory to decode") from error
    except (av.FFmpegError, ValueError, OverflowError) as error:
        raise AudioError(f"is damaged: {error}") from error
    if samples is None:
        raise AudioError(f"is longer than {limits.max_seconds:g} s, which this worker accepts")
    if not len(samples):
        raise AudioError("has no samples")
    if not max(abs(float(samples.min())), abs(float(samples.max()))) <= _LOUDEST:
        raise AudioError("has samples that are no numbers, or far too large")
    return samples


def _joined(
    parts: Iterator[Samples], most: int, is_cancelled: Callable[[], bool]
) -> Samples | None:
    """None if there are more than `most`."""
    found, count = [], 0
    for part in parts:
        if is_cancelled():
            raise AudioError("was cancelled")
        found.append(part)
        if (count := count + len(part)) > most:
            return None
    return np.concatenate(found) if found else np.zeros(0, np.float32)


def _format(data: bytes) -> str:
    """FFmpeg's name of the container."""
    head = data[:12]
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        return "wav"
    if head[:4] in _BY_FOUR:
        return _BY_FOUR[head[:4]]
    if head[4:8] == b"ftyp":
        return "mov"
    if head[:3] == b"ID3" or (head[:1] == b"\xff" and len(head) > 1 and _is_mp3(head[1])):
        return "mp3"
    if not data:
        raise AudioError("is empty")
    raise AudioError(f"is not a file of sound in the format {ACCEPTED}")


_BY_FOUR = {b"fLaC": "flac", b"OggS": "ogg", b"\x1a\x45\xdf\xa3": "matroska"}


def _is_mp3(second: int) -> bool:
    """Of the first two bytes of a frame: the end of the mark, and a layer."""
    return second & 0xE0 == 0xE0 and second & 0x06 != 0


def _decoded(data: bytes, form: str, rate: int) -> Iterator[Samples]:
    import av

    options = {"protocol_whitelist": "none"}
    with av.open(io.BytesIO(data), "r", format=form, options=options) as container:
        if not container.streams.audio:
            raise AudioError("has no sound")
        stream = container.streams.audio[0]
        _check_codec(stream.codec_context)
        stream.codec_context.thread_count = 1
        resampler = av.AudioResampler(format="fltp", rate=rate)
        for frame in container.decode(stream):
            yield from map(_mono, resampler.resample(frame))
        yield from map(_mono, resampler.resample(None))


def _mono(frame: Any) -> Samples:
    """Of PyAV's frame, whose array is [channels, samples]."""
    channels: Samples = frame.to_ndarray()
    mono: Samples = channels[0] if len(channels) == 1 else channels.mean(axis=0)
    return mono


def _check_codec(context: Any) -> None:
    if context is None:
        raise AudioError("names no codec that is known")
    codec = context.codec.canonical_name
    if codec not in _CODECS and not codec.startswith("pcm_"):
        raise AudioError(f"has the codec {codec}, which this worker does not decode")
    if not 0 < context.sample_rate <= _MOST_RATE:
        raise AudioError(f"has {context.sample_rate} samples a second; at most {_MOST_RATE} do")
    if context.layout.nb_channels > _MOST_CHANNELS:
        raise AudioError(f"has more than {_MOST_CHANNELS} channels")
