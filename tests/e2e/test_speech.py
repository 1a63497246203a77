"""whisper-base behind `pando up`, on real speech: the text of transformers, for other clients and
parsers than ours.

Its weights come from Python packages and the speech from Debian, so these tests are skipped where
they are not reachable.
"""

import asyncio
import json
import subprocess
import urllib.error
import urllib.request
import wave
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import openai
import pytest
import srt
import torch
import webvtt
from transformers import WhisperForConditionalGeneration, WhisperProcessor

from examples.audio.fetch import NotReachableError, fetch_model, fetch_speech, transcripts
from tests.e2e.clients.venvs import python_of
from tests.e2e.up_process import UpProcess
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.e2e, pytest.mark.long]

MODEL = "whisper-base"
WORDS = 71

_LITELLM_CALL = """
import json, sys, litellm
with open(sys.argv[1], "rb") as file:
    answer = litellm.transcription(
        model="openai/whisper-base", file=file, language="en", api_base=sys.argv[2], api_key="none"
    )
print(json.dumps(answer.text))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audio")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    try:
        return fetch_model(folder)
    except NotReachableError as error:
        pytest.skip(f"whisper-base: {error}")


@pytest.fixture(scope="module")
def speech(folder: Path) -> Path:
    try:
        return fetch_speech(folder)
    except NotReachableError as error:
        pytest.skip(f"real speech: {error}")


@pytest.fixture(scope="module")
def sentences(speech: Path) -> list[Path]:
    return sorted(speech.glob("*.wav"))


@pytest.fixture(scope="module")
def expected(model: Path, sentences: list[Path]) -> list[str]:
    """What transformers hears."""
    processor = WhisperProcessor.from_pretrained(model)
    theirs = WhisperForConditionalGeneration.from_pretrained(model, dtype=torch.float32).eval()
    texts = []
    for path in sentences:
        features = processor(samples_of(path), sampling_rate=16_000, return_tensors="pt")
        with torch.inference_mode():
            ids = theirs.generate(features.input_features, language="en", task="transcribe")
        texts += processor.batch_decode(ids, skip_special_tokens=True)
    return [text.strip() for text in texts]


def samples_of(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels()) == (16_000, 1)
        data = file.readframes(file.getnframes())
    return np.frombuffer(data, "<i2").astype(np.float32) / 32768


@pytest.fixture(scope="module")
def up(model: Path) -> Iterator[UpProcess]:
    with UpProcess("--model", str(model), "--workers", "1") as up:
        yield up.wait_ready()


@pytest.fixture(autouse=True)
def forgetful(up: UpProcess) -> None:
    """A test's first answers are decoded, not verified."""
    (replica,) = up.replicas().values()
    flush = urllib.request.Request(replica["url"] + "/flush_cache", method="POST")

    def is_flushed() -> bool:
        try:
            with urllib.request.urlopen(flush, timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:  # the last test's requests are still being released
            return False

    until(is_flushed, "the worker has forgotten earlier answers")


@pytest.fixture
def client(up: UpProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{up.url}/v1", api_key="none", timeout=300)


def test_transformers_makes_one_error_in_all_words(speech: Path, expected: list[str]) -> None:
    """Else agreement with it would mean little."""
    said = [transcripts(speech)[number].split() for number in sorted(transcripts(speech))]
    heard = [words(text) for text in expected]
    assert sum(map(len, said)) == WORDS
    assert sum(errors(*pair) for pair in zip(said, heard, strict=True)) == 1


def words(text: str) -> list[str]:
    """As the transcripts spell them."""
    plain = text.lower().replace("-", " ").replace("mr.", "mister")
    return "".join(c for c in plain if c.isalpha() or c == " ").split()


def errors(said: list[str], heard: list[str]) -> int:
    """Words to insert, delete or replace."""
    row = list(range(len(heard) + 1))
    for index, word in enumerate(said, 1):
        before, row[0] = row[0], index
        for at, other in enumerate(heard, 1):
            least = min(row[at] + 1, row[at - 1] + 1, before + (word != other))
            before, row[at] = row[at], least
    return row[-1]


def test_the_text_is_that_of_transformers(
    client: openai.OpenAI, sentences: list[Path], expected: list[str]
) -> None:
    found = [
        client.audio.transcriptions.create(model=MODEL, file=path, language="en").text
        for path in sentences
    ]
    assert found == expected


def test_answers_to_equal_files_are_verified(
    up: UpProcess, client: openai.OpenAI, sentences: list[Path], expected: list[str]
) -> None:
    """In one step each, and none is refuted."""

    def asked() -> list[str]:
        return [
            client.audio.transcriptions.create(model=MODEL, file=path, language="en").text
            for path in sentences
        ]

    (replica,) = up.replicas()
    assert asked() == expected
    assert asked() == expected
    text = up.get("/metrics", up.replicas()[replica]["url"]).decode()
    assert "refuted" not in text
    assert up.metric(replica, 'pando_worker_drafts_total{outcome="confirmed"}') >= len(sentences)


def test_a_stream_has_the_text_of_transformers(
    client: openai.OpenAI, sentences: list[Path], expected: list[str]
) -> None:
    for path, text in zip(sentences, expected, strict=True):
        events = list(
            client.audio.transcriptions.create(model=MODEL, file=path, language="en", stream=True)
        )
        deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
        assert "".join(deltas) == text
        assert events[-1].type == "transcript.text.done"
        assert events[-1].text == text


async def test_eight_at_once_have_the_texts_of_transformers(
    up: UpProcess, sentences: list[Path], expected: list[str]
) -> None:
    which = [at % len(sentences) for at in range(8)]
    async with openai.AsyncOpenAI(base_url=f"{up.url}/v1", api_key="none", timeout=300) as client:
        answers = await asyncio.gather(
            *(
                client.audio.transcriptions.create(model=MODEL, file=sentences[at], language="en")
                for at in which
            )
        )
    assert [answer.text for answer in answers] == [expected[at] for at in which]


@pytest.fixture(scope="module")
def book(folder: Path, sentences: list[Path]) -> Path:
    """All sentences in one file, which is longer than a window."""
    path = folder / "book.wav"
    samples = np.concatenate([samples_of(each) for each in (*sentences, *sentences)])
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((samples * 32768).astype("<i2").tobytes())
    return path


def test_subtitles_are_read_by_other_parsers(client: openai.OpenAI, book: Path) -> None:
    seconds = len(samples_of(book)) / 16_000

    def asked(form: Literal["srt", "vtt"]) -> str:
        answer = client.audio.transcriptions.create(
            model=MODEL, file=book, language="en", response_format=form
        )
        assert isinstance(answer, str)
        return answer

    subtitles = list(srt.parse(asked("srt")))
    times = [(cue.start.total_seconds(), cue.end.total_seconds()) for cue in subtitles]
    captions = webvtt.from_string(asked("vtt")).captions
    assert [(cue.start_in_seconds, cue.end_in_seconds) for cue in captions] == [
        (int(start), int(end)) for start, end in times
    ]
    assert [cue.text for cue in captions] == [cue.content for cue in subtitles]
    assert [cue.index for cue in subtitles] == list(range(1, len(subtitles) + 1))
    assert len(subtitles) >= 5
    assert all(0 <= start < end <= seconds + 0.02 for start, end in times)
    assert all(end <= start for (_, end), (start, _) in pairwise(times))
    assert "Dashwood" in " ".join(cue.content for cue in subtitles)


def test_curl_sends_a_file(up: UpProcess, sentences: list[Path], expected: list[str]) -> None:
    url = f"{up.url}/v1/audio/transcriptions"
    form = ["-F", f"model={MODEL}", "-F", "language=en", "-F", f"file=@{sentences[1]}"]
    done = subprocess.run(["curl", "-sS", *form, url], capture_output=True, check=True, timeout=300)
    assert json.loads(done.stdout)["text"] == expected[1]


def test_litellm_transcribes(up: UpProcess, sentences: list[Path], expected: list[str]) -> None:
    done = subprocess.run(
        [str(python_of("litellm")), "-c", _LITELLM_CALL, str(sentences[0]), f"{up.url}/v1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == expected[0]
