"""The length of a file of sound from its header, beside what FFmpeg decodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.canonical import sound_bytes
from pando_fleet.images.film import MAX_SECONDS
from pando_fleet.images.in_prefix import counted
from pando_fleet.images.rule import ImageRule
from pando_fleet.images.sound import UNKNOWN_BYTES_PER_S, sound_seconds
from pando_fleet.images.sound_rule import MAX_TOKENS, SoundRule
from tests.worker.audio.sounds import RATE, chirp, encoded, noise, wav
from tests.worker.vision.films import film

RULE = SoundRule(window_s=30.0, tokens=1500)


def seconds(data: bytes) -> float:
    return sound_seconds(lambda start, end: data[start:end], len(data))


@pytest.mark.parametrize("length", [0.5, 2.0, 7.3])
@pytest.mark.parametrize(
    ("form", "codec", "rate"),
    [
        ("wav", "pcm_s16le", RATE),
        ("wav", "pcm_f32le", RATE),
        ("flac", "flac", RATE),
        ("ogg", "libopus", 48_000),
        ("webm", "libopus", 48_000),
        ("mp3", "libmp3lame", RATE),
        ("mp3", "libmp3lame", 44_100),
        ("mp4", "aac", 44_100),
    ],
)
def test_length_is_that_of_the_header(form: str, codec: str, rate: int, length: float) -> None:
    assert seconds(encoded(chirp(length, rate), form, codec, rate=rate)) == pytest.approx(
        length, abs=0.15
    )


def test_an_mp3_without_a_xing_header_has_the_length_of_its_bit_rate() -> None:
    data = encoded(noise(3.0), "mp3", "libmp3lame", b="64k")
    first = max(data.find(b"Xing"), data.find(b"Info"))
    frames = data[data.index(data[data.index(b"\xff") :][:2], first) :]
    assert seconds(frames) == pytest.approx(3.0, abs=0.2)


def test_a_video_has_the_length_of_its_sound() -> None:
    assert seconds(film(frames=40)) == pytest.approx(5.0)


def test_an_unknown_length_is_guessed_from_the_size() -> None:
    assert seconds(b"x" * 10 * UNKNOWN_BYTES_PER_S) == 10.0
    endless = bytearray(wav(noise(1.0)))
    place = endless.index(b"data") + 4
    endless[place : place + 4] = b"\xff\xff\xff\xff"  # as of a stream
    assert seconds(bytes(endless)) == pytest.approx(1.0)


@given(
    st.sampled_from([b"RIFF0000WAVE", b"fLaC", b"OggS", b"ID3\x04", b"\xff\xfb", b"0000ftyp", b""]),
    st.binary(max_size=400),
)
def test_any_bytes_have_a_length(head: bytes, rest: bytes) -> None:
    assert 0 <= seconds(head + rest) <= MAX_SECONDS


def test_tokens_are_those_of_whole_windows() -> None:
    assert [RULE.tokens_of(length) for length in (0.1, 30.0, 30.1, 90.0)] == [
        1500,
        1500,
        3000,
        4500,
    ]
    assert RULE.tokens_of(1e9) == MAX_TOKENS


def test_a_file_counts_by_its_bytes() -> None:
    one, same, other = (wav(noise(1.0, seed)) for seed in (0, 0, 1))
    assert sound_bytes(one) == sound_bytes(same)
    assert sound_bytes(one)[0] != sound_bytes(other)[0]
    _, sound = sound_bytes(one)
    (known,) = counted([sound], ImageRule(kind="none", sounds=RULE))
    assert known.tokens == 1500
    (deaf,) = counted([sound], ImageRule(kind="fixed", tokens=576))
    assert deaf.tokens == 0
