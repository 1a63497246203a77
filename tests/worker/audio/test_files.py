"""Files of sound to samples; and what is no such file."""

import io
import wave as wave_files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pando_worker.audio import files
from pando_worker.audio.arrays import Samples
from pando_worker.audio.errors import AudioError
from pando_worker.audio.files import AudioLimits, samples_of
from pando_worker.reading import cpu_time
from tests.worker.audio.sounds import RATE, chirp, encoded, noise, wav

LIMITS = AudioLimits(max_bytes=2**20, max_seconds=10.0)


def read(data: bytes, limits: AudioLimits = LIMITS) -> Samples:
    return samples_of(data, RATE, limits, lambda: False)


@pytest.mark.parametrize(
    ("form", "codec", "rate"),
    [
        ("wav", "pcm_s16le", RATE),
        ("wav", "pcm_s24le", RATE),
        ("wav", "pcm_f32le", RATE),
        ("flac", "flac", RATE),
        ("mp4", "alac", RATE),
        ("ogg", "libopus", 48_000),
        ("webm", "libopus", 48_000),
        ("mp3", "libmp3lame", RATE),
    ],
)
def test_each_format_is_read(form: str, codec: str, rate: int) -> None:
    found = read(encoded(chirp(2.0, rate), form, codec, rate=rate))
    expected = chirp(2.0)
    assert found.dtype == np.float32
    assert abs(len(found) - len(expected)) < RATE / 10
    count = min(len(found), len(expected))
    assert np.abs(found[:count] - expected[:count]).mean() < 0.02


def test_samples_of_16_bits_are_those_of_the_file() -> None:
    data = wav(noise(0.5))
    with wave_files.open(io.BytesIO(data)) as file:
        expected = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    np.testing.assert_array_equal(read(data), expected.astype(np.float32) / 32768)


def test_m4a_is_read() -> None:
    found = read(encoded(chirp(2.0, 44_100), "mp4", "aac", rate=44_100))
    assert abs(len(found) / RATE - 2.0) < 0.1
    assert 0.1 < np.abs(found).mean() < 0.4


def test_channels_are_mixed_and_rates_converted() -> None:
    data = encoded(chirp(2.0, 44_100), "wav", "pcm_s16le", rate=44_100, layout="stereo")
    found = read(data)
    assert len(found) == 2 * RATE
    assert np.abs(found - chirp(2.0)).mean() < 0.01


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"RIFF", "is not a file of sound"),
        (b"#EXTM3U\nhttp://example.org/a.ts\n", "is not a file of sound"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "is not a file of sound"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is not a file of sound"),
        (b"RIFF\xff\xff\xff\xffWAVE" + bytes(100), "is damaged|has no sound"),
        (b"fLaC" + bytes(100), "is damaged|has no sound"),
        (b"OggS" + bytes(1000), "is damaged|has no sound"),
        (b"ID3\x04" + b"\xff" * 1000, "is damaged|has no sound|has no samples"),
        (b"\x1a\x45\xdf\xa3" + b"\xff" * 1000, "is damaged|has no sound"),
        (bytes(4) + b"ftypM4A " + bytes(1000), "is damaged|has no sound"),
        (bytes(2**20 + 1), "has 1048577 bytes; this worker accepts 1048576"),
        (wav(noise(10.1)), "is longer than 10 s"),
        (wav(noise(0.5))[:78], "has no samples|is damaged"),
        (wav(noise(0.5)).replace(b"\x10\0\0\0\x01\0", b"\x10\0\0\0\0\0", 1), "names no codec"),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, bytes) else "",
)
def test_what_is_refused_says_why(data: bytes, message: str) -> None:
    with pytest.raises(AudioError, match=message):
        read(data)


def test_a_file_that_ends_early_is_read_as_far_as_it_goes_or_refused() -> None:
    whole = wav(noise(2.0))
    assert len(read(whole[: len(whole) // 2])) == pytest.approx(RATE, rel=0.01)
    with pytest.raises(AudioError, match="is damaged"):
        read(encoded(noise(2.0), "mp4", "aac")[:5000])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_samples_that_are_no_numbers_are_refused(value: float) -> None:
    sound = noise(0.5)
    sound[100] = value
    with pytest.raises(AudioError, match="no numbers"):
        read(encoded(sound, "wav", "pcm_f32le"))


def test_a_video_without_sound_is_refused() -> None:
    from tests.worker.vision.films import film

    with pytest.raises(AudioError, match="has no sound"):
        read(film())


def test_a_file_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_CPU_S", 0.02)
    # A signal whose exception is ignored, as in a finalizer, is followed by another in time.
    monkeypatch.setattr(cpu_time, "_AGAIN_S", 0.02)
    long = encoded(chirp(240), "flac", "flac")
    with pytest.raises(AudioError, match=r"takes more than 0\.02 s to decode"):
        samples_of(long, RATE, AudioLimits(10**9, 1e6), lambda: False)


def test_a_cancelled_read_ends_between_frames() -> None:
    asked = iter([False, False, True])
    with pytest.raises(AudioError, match="was cancelled"):
        samples_of(wav(noise(5.0)), RATE, LIMITS, lambda: next(asked))


SOUND = noise(0.3)
FILES = [
    wav(SOUND),
    encoded(SOUND, "flac", "flac"),
    encoded(chirp(0.3, 48_000), "ogg", "libopus", rate=48_000),
    encoded(SOUND, "mp3", "libmp3lame"),
    encoded(SOUND, "mp4", "aac"),
]


@hypothesis_settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(FILES),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=8),
    st.integers(0, 10**6),
)
def test_damaged_files_are_read_or_refused(
    data: bytes, changes: list[tuple[int, int]], length: int
) -> None:
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    try:
        found = read(bytes(damaged[: 1 + length % len(damaged)]))
    except AudioError:
        return
    assert 0 < len(found) <= LIMITS.max_seconds * RATE
    assert np.isfinite(found).all()
