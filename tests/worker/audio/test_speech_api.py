"""Transcriptions through the whole worker: those of transformers, in OpenAI's forms."""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import openai
import pytest

from pando_worker.audio.words import words_of
from tests.worker.audio.hearer import (
    FIRST_TIMESTAMP,
    MOST,
    WINDOW_S,
    Hearer,
    save_hearer,
    text_of,
)
from tests.worker.audio.sounds import Wave, chirp, encoded, noise, wav
from tests.worker.server.process.worker_process import WorkerProcess, metric, until

pytestmark = pytest.mark.e2e

COLD = 1e-7
"""A temperature: greedy, and the only one."""


@pytest.fixture(scope="module")
def hearer(tmp_path_factory: pytest.TempPathFactory) -> Hearer:
    return save_hearer(tmp_path_factory.mktemp("hearer"))


@pytest.fixture(scope="module")
def worker(hearer: Hearer) -> Iterator[WorkerProcess]:
    with WorkerProcess.start(
        stand_in=False,
        model=str(hearer.path),
        served_model_name="whisper",
        threads=1,
        cpu_kernels="off",
        page_size=4,
        max_audio_bytes=2_000_000,
        max_audio_seconds=60,
    ) as worker:
        yield worker


@pytest.fixture
async def client(worker: WorkerProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with worker.client() as client:
        yield client


@pytest.fixture
async def http(worker: WorkerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(worker.url) as http:
        yield http


async def test_a_generated_health_check_hears_silence(http: aiohttp.ClientSession) -> None:
    async with http.get("/health_generate") as answer:
        assert answer.status == 200


def exact(wave: Wave) -> bytes:
    return encoded(wave, "wav", "pcm_f32le")


def shown(text: str) -> str:
    return text.strip()


async def transcribed(client: openai.AsyncOpenAI, wave: Wave, **options: Any) -> Any:
    fields = {"model": "whisper", "language": "en", "temperature": COLD} | options
    create: Any = client.audio.transcriptions.create
    return await create(file=("a.wav", exact(wave)), **fields)


@pytest.mark.parametrize("seconds", [1.0, 3.0, pytest.param(10.0, marks=pytest.mark.long), 20.3])
async def test_segments_are_those_of_transformers_sequential_algorithm(
    client: openai.AsyncOpenAI, hearer: Hearer, seconds: float
) -> None:
    wave = chirp(seconds) + noise(seconds)
    found = await transcribed(client, wave, response_format="verbose_json")
    expected = hearer.segments(wave)
    tokens = [segment.tokens for segment in found.segments]
    assert tokens == [s["tokens"].tolist() for s in expected]
    assert [(segment.start, segment.end) for segment in found.segments] == [
        (round(float(s["start"]), 3), round(float(s["end"]), 3)) for s in expected
    ]
    assert found.text == shown(text_of([token for each in tokens for token in each]))
    assert (found.language, found.duration) == ("english", seconds)


async def test_a_short_file_has_the_text_of_transformers_alone_and_in_a_batch(
    client: openai.AsyncOpenAI, hearer: Hearer
) -> None:
    waves = [noise(1.0 + at / 4, seed=at) for at in range(8)]
    expected = [shown(text_of(hearer.untimed(wave))) for wave in waves]
    alone = await transcribed(client, waves[0])
    together = await asyncio.gather(*(transcribed(client, wave) for wave in waves))
    assert alone.text == expected[0]
    assert [one.text for one in together] == expected
    assert alone.usage.type == "tokens"
    assert alone.usage.input_token_details.audio_tokens == 150


async def test_a_translation_and_a_prompt_are_those_of_transformers(
    client: openai.AsyncOpenAI, hearer: Hearer
) -> None:
    wave = noise(2.0)
    language = hearer.language(wave)
    expected = hearer.untimed(wave, task="translate", language=language)
    found = await client.audio.translations.create(
        model="whisper", file=("a.wav", exact(wave)), temperature=COLD
    )
    assert found.text == shown(text_of(expected))


async def test_language_is_detected_as_by_transformers(
    client: openai.AsyncOpenAI, hearer: Hearer
) -> None:
    names = {"en": "english", "de": "german", "ja": "japanese"}
    for seed in range(4):
        wave = noise(2.0, seed)
        found = await transcribed(
            client, wave, language=openai.omit, response_format="verbose_json"
        )
        assert found.language == names[hearer.language(wave)]


async def test_a_stream_has_the_text_of_the_whole_answer(client: openai.AsyncOpenAI) -> None:
    wave = chirp(12.0) + noise(12.0)
    whole = await transcribed(client, wave)
    stream = await transcribed(client, wave, stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1)
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == whole.text
    assert "".join(event.delta for event in events[:-1]) == whole.text
    assert events[-1].usage.total_tokens == whole.usage.total_tokens


@pytest.mark.parametrize("seconds", [2.0, 7.0])
async def test_a_repeated_file_reports_its_cached_tokens(
    http: aiohttp.ClientSession, seconds: float
) -> None:
    """Also if its language is detected, which encodes the first window. Streams of several windows
    begin before the others are known."""
    wave = chirp(seconds) + noise(seconds, seed=99)

    async def counts(**fields: str) -> tuple[int, int] | None:
        form = aiohttp.FormData({"model": "whisper", "temperature": "1e-7"} | fields)
        form.add_field("file", exact(wave), filename="a.wav")
        async with http.post("/v1/audio/transcriptions", data=form) as answer:
            assert answer.status == 200
            await answer.read()
            if "x-pando-cached-tokens" not in answer.headers:
                return None
            cached = int(answer.headers["x-pando-cached-tokens"])
            return cached, int(answer.headers["x-pando-prompt-tokens"])

    tokens = 150 * math.ceil(seconds / WINDOW_S)
    assert await counts() == (0, tokens)
    assert await counts() == (tokens, tokens)
    streamed = await counts(stream="true")
    assert streamed == ((tokens, tokens) if seconds < WINDOW_S else None)


async def drafts(http: aiohttp.ClientSession) -> tuple[float, float]:
    """Earlier answers that the engine confirmed, and that it refuted."""
    name = "pando_worker_drafts_total"
    confirmed = await metric(http, name, '{outcome="confirmed"}')
    return confirmed, await metric(http, name, '{outcome="refuted"}')


@pytest.mark.parametrize(
    "response_format", [pytest.param("json", marks=pytest.mark.long), "verbose_json"]
)
async def test_an_answer_to_an_equal_window_is_verified(
    client: openai.AsyncOpenAI, http: aiohttp.ClientSession, response_format: str
) -> None:
    """Its segments are the same, to their log-probabilities. (Random weights may have windows
    decoded again, at temperatures that draw.) Another prompt is another question."""
    wave = chirp(2.0) + noise(2.0, seed=77)
    fields: dict[str, Any] = {"temperature": 0, "response_format": response_format}
    before = await drafts(http)
    first = await transcribed(client, wave, **fields)
    assert await drafts(http) == before
    again = await transcribed(client, wave, **fields)
    confirmed, refuted = await drafts(http)
    assert (confirmed > before[0], refuted) == (True, before[1])
    if response_format == "verbose_json":
        likeliest = [
            [(one.seek, one.tokens, one.start, one.end) for one in segments if not one.temperature]
            for segments in (first.segments, again.segments)
        ]
        assert likeliest[0] == likeliest[1]
    await transcribed(client, wave, prompt="before", **fields)
    assert await drafts(http) == (confirmed, refuted)


async def test_a_request_for_speech_counts_in_the_latencies(
    client: openai.AsyncOpenAI, http: aiohttp.ClientSession
) -> None:
    async def count(name: str) -> float:
        return await metric(http, f"pando_worker_{name}")

    names = ("time_to_first_token_seconds", "request_duration_seconds", "request_output_tokens")
    before = [await count(f"{name}_count") for name in names]
    first_s = await count("time_to_first_token_seconds_sum")
    whole_s = await count("request_duration_seconds_sum")
    tokens = await count("request_output_tokens_sum")
    gaps = await count("inter_token_latency_seconds_count")
    found = await transcribed(client, noise(2.0, seed=5))
    assert [await count(f"{name}_count") for name in names] == [number + 1 for number in before]
    first_s = await count("time_to_first_token_seconds_sum") - first_s
    assert 0 < first_s < await count("request_duration_seconds_sum") - whole_s
    assert await count("request_output_tokens_sum") - tokens == found.usage.output_tokens
    assert 0 < await count("inter_token_latency_seconds_count") - gaps < found.usage.output_tokens


async def test_a_file_that_is_cut_in_pauses_is_transcribed_in_order(
    client: openai.AsyncOpenAI,
) -> None:
    wave = chirp(20.0) + noise(20.0)
    one = await transcribed(client, wave, response_format="verbose_json", chunking_strategy="auto")
    again = await transcribed(
        client, wave, response_format="verbose_json", chunking_strategy="auto"
    )
    assert one.text == again.text
    seeks = [segment.seek for segment in one.segments]
    assert seeks == sorted(seeks)
    assert len(set(seeks)) >= 7


async def test_subtitles(client: openai.AsyncOpenAI, http: aiohttp.ClientSession) -> None:
    wave = chirp(7.0) + noise(7.0)
    srt = await transcribed(client, wave, response_format="srt")
    vtt = await transcribed(client, wave, response_format="vtt")
    time = r"\d\d:\d\d:\d\d[,.]\d{3}"
    assert re.match(rf"1\n{time} --> {time}\n.*\n", srt)
    assert re.match(rf"WEBVTT\n\n{time} --> {time}\n.*\n", vtt)
    text = await transcribed(client, wave, response_format="text")
    assert text == (await transcribed(client, wave)).text + "\n"


@pytest.mark.parametrize("seconds", [3.0, 10.0])
async def test_words_have_the_times_of_transformers(
    client: openai.AsyncOpenAI, hearer: Hearer, seconds: float
) -> None:
    wave = chirp(seconds) + noise(seconds)
    found = await transcribed(
        client,
        wave,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    ends = []
    for segment in hearer.segments(wave, return_token_timestamps=True, masked=True):
        tokens, times = segment["tokens"].tolist(), segment["token_timestamps"].tolist()
        text = [(token, time) for token, time in zip(tokens, times, strict=True) if token < 256]
        spans = words_of([token for token, _ in text], text_of, "en")
        ends += [
            (text_of([t for t, _ in text[s.first : s.last + 1]]).strip(), text[s.last][1])
            for s in spans
        ]
    assert [word.word for word in found.words] == [word for word, _ in ends]
    assert [word.end for word in found.words] == pytest.approx([end for _, end in ends], abs=0.011)
    assert all(word.start <= word.end for word in found.words)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"model": ""}, "model", "model is required"),
        ({"language": "klingon"}, "language", "ISO 639-1"),
        ({"language": "fr"}, "language", "does not know french"),
        ({"response_format": "xml"}, "response_format", "must be json, text, srt, vtt or"),
        ({"temperature": "2"}, "temperature", "between 0 and 1"),
        ({"temperature": "nan"}, "temperature", "between 0 and 1"),
        ({"stream": "perhaps"}, "stream", "true or false"),
        ({"stream": "true", "response_format": "srt"}, "stream", "needs response_format json"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "verbose_json"),
        ({"chunking_strategy": "server_vad"}, "chunking_strategy", "must be auto"),
        ({"temprature": "0"}, "temprature", "unknown field 'temprature'"),
        ({"prompt": "<|nospeech|>"}, "prompt", "special tokens"),
    ],
)
async def test_a_wrong_field_is_named(
    http: aiohttp.ClientSession, fields: dict[str, str], param: str, message: str
) -> None:
    form = aiohttp.FormData({"model": "whisper"} | fields)
    form.add_field("file", wav(noise(0.5)), filename="a.wav")
    async with http.post("/v1/audio/transcriptions", data=form) as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["param"]) == (400, param)
    assert message in error["message"]


@pytest.mark.parametrize(
    ("file", "status", "message"),
    [
        (b"text", 400, "file is not a file of sound"),
        (wav(noise(61.0)), 400, "file is longer than 60 s"),
        (bytes(2_000_001), 413, "file has more than 2000000 bytes"),
        (None, 400, "file is required"),
    ],
    ids=["text", "long", "large", "none"],
)
async def test_a_wrong_file_is_refused(
    http: aiohttp.ClientSession, file: bytes | None, status: int, message: str
) -> None:
    form = aiohttp.FormData({"model": "whisper"}, default_to_multipart=True)
    if file is not None:
        form.add_field("file", file, filename="a.wav")
    async with http.post("/v1/audio/transcriptions", data=form) as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["param"]) == (status, "file")
    assert message in error["message"]


async def test_silence_ends(client: openai.AsyncOpenAI) -> None:
    await transcribed(client, 0 * noise(1.5 * WINDOW_S), temperature=0)


@pytest.mark.long
async def test_clients_that_leave_leave_nothing_behind(
    worker: WorkerProcess, http: aiohttp.ClientSession
) -> None:
    """In the middle of uploads, of reading, and of decoding."""
    body = exact(chirp(20.0) + noise(20.0))

    async def slow() -> AsyncIterator[bytes]:
        yield (
            b"--x\r\ncontent-disposition: form-data; name=model\r\n\r\nwhisper\r\n--x\r\n"
            b"content-disposition: form-data; name=file; filename=a\r\n\r\n"
        )
        yield body[:100_000]
        await asyncio.Event().wait()

    async def leave(at: int) -> None:
        form = aiohttp.FormData({"model": "whisper", "language": "en"})
        form.add_field("file", body, filename="a.wav")
        upload: Any = slow() if at % 4 == 0 else form
        headers = {"content-type": "multipart/form-data; boundary=x"} if at % 4 == 0 else {}
        try:
            async with asyncio.timeout(0.02 * (at % 50)):
                async with http.post(
                    "/v1/audio/transcriptions", data=upload, headers=headers
                ) as answer:
                    await answer.read()
        except TimeoutError:
            pass

    await asyncio.gather(*(leave(at) for at in range(200)))

    async def is_idle() -> bool:
        names = ("running_requests", "waiting_requests", "pinned_tokens")
        return not any([await metric(http, f"pando_worker_{name}") for name in names])

    await until(is_idle)
    async with worker.client() as client:
        assert (await transcribed(client, noise(1.0))).usage is not None


def test_the_tiny_model_predicts_time_stamps_and_text(hearer: Hearer) -> None:
    """Else comparisons with it would mean little."""
    segments = hearer.segments(chirp(20.3) + noise(20.3))
    tokens = [token for segment in segments for token in segment["tokens"].tolist()]
    assert len(segments) > 7
    assert len({token for token in tokens if token < 256}) > 10
    assert len({token for token in tokens if token >= FIRST_TIMESTAMP}) > 10
    assert len(tokens) > MOST
