"""When a window is decoded again."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

from pando_worker.audio.fallback import DecodingVerdict, Quality, compression_of


@given(st.lists(st.integers(0, 51_864), min_size=1, max_size=448), st.sampled_from([200, 51_865]))
def test_compression_is_that_of_transformers(tokens: list[int], vocab_size: int) -> None:
    tokens = [token % vocab_size for token in tokens]
    expected = WhisperGenerationMixin._retrieve_compression_ratio(torch.tensor(tokens), vocab_size)
    assert compression_of(tokens, vocab_size) == expected


@pytest.mark.parametrize(
    ("quality", "verdict"),
    [
        (Quality(1.0, -0.3, 0.01), DecodingVerdict.GOOD),
        (Quality(1.0, -0.3, 0.99), DecodingVerdict.GOOD),  # it was sure of what it said
        (Quality(1.4, -0.3, 0.01), DecodingVerdict.AGAIN),
        (Quality(1.0, -1.1, 0.01), DecodingVerdict.AGAIN),
        (Quality(1.4, -1.1, 0.99), DecodingVerdict.SILENT),
        (Quality(1.35, -1.0, 0.6), DecodingVerdict.GOOD),
    ],
)
def test_thresholds(quality: Quality, verdict: DecodingVerdict) -> None:
    assert quality.verdict is verdict
