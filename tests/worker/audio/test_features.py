"""Features are those of transformers' extractor."""

from pathlib import Path

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from pando_worker.audio.features import FeatureExtractor
from pando_worker.audio.heard import FEATURES, Heard, digest_of
from tests.worker.audio.sounds import RATE, chirp, noise


@pytest.fixture(scope="module", params=[80, 128])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FeatureExtractor, WhisperFeatureExtractor]:
    path: Path = tmp_path_factory.mktemp("extractor")
    theirs = WhisperFeatureExtractor(feature_size=request.param)
    theirs.save_pretrained(path)
    return FeatureExtractor(path), theirs


@pytest.mark.parametrize("seconds", [0.01, 1.0, 29.99, 30.0, 30.01, 75.337])
def test_features_are_those_of_transformers(
    both: tuple[FeatureExtractor, WhisperFeatureExtractor], seconds: float
) -> None:
    ours, theirs = both
    sound = chirp(seconds) + noise(seconds)
    is_long = len(sound) > 30 * RATE
    expected = theirs(  # as transformers' pipeline calls it
        sound,
        sampling_rate=RATE,
        return_tensors="np",
        **({"truncation": False, "padding": "longest"} if is_long else {}),
    ).input_features[0]
    found = ours.features(sound)
    assert found.shape == expected.shape == (ours.mel_bins, max(3000, len(sound) // 160))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_silence_has_features(both: tuple[FeatureExtractor, WhisperFeatureExtractor]) -> None:
    ours, theirs = both
    silence = np.zeros(RATE, np.float32)
    expected = theirs(silence, sampling_rate=RATE, return_tensors="np").input_features[0]
    np.testing.assert_array_equal(ours.features(silence), expected)


def test_a_window_is_padded_with_zeros_as_that_of_transformers() -> None:
    features = np.arange(2 * 70, dtype=np.float32).reshape(2, 70)
    heard = Heard(0.7, 70, (), digest_of(features), {FEATURES: features})
    window = heard.window(40, 30, 50)
    np.testing.assert_array_equal(window[:, :30], features[:, 40:])
    np.testing.assert_array_equal(window[:, 30:], 0)
    digests = {heard.window_digest(*place) for place in [(40, 30), (40, 29), (4, 30), (40, 30)]}
    assert len(digests) == 3
    assert all(len(digest) == 16 for digest in digests)
