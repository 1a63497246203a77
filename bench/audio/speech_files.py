"""Files of speech for measurements: sentences, in each file in another order."""

import io
import itertools
import random
import wave
from collections.abc import Sequence
from pathlib import Path

RATE = 16_000
_BYTES = 2  # of a sample


def read_sentences(directory: Path) -> list[bytes]:
    """The samples of a directory's WAV files, by name.

    Raises:
        ValueError: there are none, or one is not 16-bit mono at 16 kHz.
    """
    found = []
    for path in sorted(directory.glob("*.wav")):
        with wave.open(str(path)) as file:
            form = (file.getframerate(), file.getnchannels(), file.getsampwidth())
            if form != (RATE, 1, _BYTES):
                raise ValueError(f"{path} has rate, channels and width {form}")
            found.append(file.readframes(file.getnframes()))
    if not found:
        raise ValueError(f"{directory} has no WAV files")
    return found


def files_of(sentences: Sequence[bytes], count: int, seconds: float) -> list[bytes]:
    """Different WAV files of exactly that length.

    Raises:
        ValueError: so few sentences have not so many orders.
    """
    size = round(seconds * RATE) * _BYTES
    orders = random.Random(0).sample(list(itertools.permutations(sentences)), count)
    return [wav(b"".join(_filled(order, size))[:size]) for order in orders]


def _filled(order: Sequence[bytes], size: int) -> list[bytes]:
    rounds = -(-size // sum(map(len, order)))
    return [sentence for _ in range(rounds) for sentence in order]


def wav(samples: bytes) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(_BYTES)
        file.setframerate(RATE)
        file.writeframes(samples)
    return out.getvalue()
