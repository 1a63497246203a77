"""Features are those of transformers' extractor without torch, and near those with torch."""

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor
from transformers.models.whisper import feature_extraction_whisper

from pando_worker.audio.arrays import Features
from pando_worker.audio.features import FeatureExtractor
from pando_worker.audio.heard import FEATURES, Heard, digest_of
from tests.worker.audio.sounds import RATE, Wave, chirp, noise


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
    found = ours.features(sound)
    expected = features_of(theirs, sound, torch=False)
    assert found.dtype == np.float32
    assert found.shape == expected.shape == (ours.mel_bins, max(3000, len(sound) // 160))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    # It computes in float32, which loses that much where a frame has little.
    np.testing.assert_allclose(found, features_of(theirs, sound, torch=True), rtol=0, atol=1e-4)


@pytest.mark.parametrize("torch", [False, True])
def test_silence_has_features(
    both: tuple[FeatureExtractor, WhisperFeatureExtractor], *, torch: bool
) -> None:
    ours, theirs = both
    silence = np.zeros(RATE, np.float32)
    np.testing.assert_array_equal(ours.features(silence), features_of(theirs, silence, torch=torch))


def features_of(extractor: WhisperFeatureExtractor, sound: Wave, *, torch: bool) -> Features:
    """As transformers' pipeline calls it.

    Args:
        torch: whether it computes with torch
    """
    is_long = len(sound) > 30 * RATE
    with mock.patch.object(feature_extraction_whisper, "is_torch_available", lambda: torch):
        features: Features = extractor(
            sound,
            sampling_rate=RATE,
            return_tensors="np",
            **({"truncation": False, "padding": "longest"} if is_long else {}),
        ).input_features[0]
    return features


def test_a_window_is_padded_with_zeros_as_that_of_transformers() -> None:
    features = np.arange(2 * 70, dtype=np.float32).reshape(2, 70)
    heard = Heard(0.7, 70, (), digest_of(features), {FEATURES: features})
    window = heard.window(40, 30, 50)
    np.testing.assert_array_equal(window[:, :30], features[:, 40:])
    np.testing.assert_array_equal(window[:, 30:], 0)
    digests = {heard.window_digest(*place) for place in [(40, 30), (40, 29), (4, 30), (40, 30)]}
    assert len(digests) == 3
    assert all(len(digest) == 16 for digest in digests)
