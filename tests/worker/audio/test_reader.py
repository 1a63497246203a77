"""Files to features, in the processes that do it."""

import asyncio
import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from pando_worker.audio.errors import AudioError, AudioUnavailableError
from pando_worker.audio.files import AudioLimits
from pando_worker.audio.heard import FEATURES
from pando_worker.audio.reader import AudioReader
from pando_worker.reading import pool as reading
from tests.worker.audio.sounds import encoded, noise, wav
from tests.worker.audio.test_features import features_of

LIMITS = AudioLimits(max_bytes=10**7, max_seconds=100.0)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AudioReader]:
    path = tmp_path_factory.mktemp("whisper")
    WhisperFeatureExtractor().save_pretrained(path)
    reader = AudioReader(path, LIMITS, processes=1)
    yield reader
    reader.close()


async def test_a_file_becomes_features(reader: AudioReader) -> None:
    await reader.loaded()
    assert reader.form is not None
    assert (reader.form.window, reader.form.frames_per_s) == (3000, 100.0)
    sound = noise(40.0)
    heard = await reader.read(encoded(sound, "wav", "pcm_f32le"))
    expected = features_of(WhisperFeatureExtractor(), sound, torch=False)
    np.testing.assert_allclose(heard.arrays[FEATURES], expected, rtol=0, atol=1e-6)
    assert (heard.seconds, heard.frames) == (40.0, 4000)
    assert [piece.end for piece in heard.pieces][-1] == 4000
    assert len(heard.pieces) == 2


async def test_a_process_that_reads_sound_has_no_torch(reader: AudioReader) -> None:
    await reader.loaded()
    await reader.read(wav(noise(1.0)))
    assert not await reader.pool.run(has_torch)


def has_torch() -> bool:
    return "torch" in sys.modules


async def test_digest_is_of_what_is_heard(reader: AudioReader) -> None:
    sound = noise(1.0)
    same = [wav(sound), encoded(sound, "flac", "flac")]
    digests = {(await reader.read(data)).digest for data in same}
    assert len(digests) == 1
    assert (await reader.read(wav(noise(1.0, seed=1)))).digest not in digests


async def test_files_are_read_beside_an_engine_that_wants_all_cores(reader: AudioReader) -> None:
    await reader.loaded()
    assert await reader.pool.run(os.sched_getscheduler, 0) == os.SCHED_OTHER
    assert await reader.pool.run(os.nice, 0) == min(19, os.nice(0) + 5)  # a quarter of a core


async def test_a_refused_file_says_why(reader: AudioReader) -> None:
    with pytest.raises(AudioError, match="is not a file of sound"):
        await reader.read(b"text")


async def test_no_more_are_read_at_once_than_fit(
    reader: AudioReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_READING", 2)
    data = wav(noise(0.5))
    reads = [asyncio.ensure_future(reader.read(data)) for _ in range(3)]
    done = await asyncio.gather(*reads, return_exceptions=True)
    assert [isinstance(one, AudioUnavailableError) for one in done] == [False, False, True]


async def test_a_cancelled_read_ends_in_its_process(reader: AudioReader) -> None:
    data = wav(noise(60.0))
    cancelled = asyncio.ensure_future(reader.read(data))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert any(reader.pool.cancelled)
    assert (await reader.read(wav(noise(0.5)))).frames == 3000
