"""POST /v1/embeddings with OpenAI's own client; the stand-in's vectors are those of `vector`."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest

from pando_worker.server.protocol.pooled.fields import MAX_INPUTS
from pando_worker.server.text.tokenizer import Tokenizer
from tests.worker.server.process.worker_process import (
    MODEL,
    MODEL_NAME,
    WorkerProcess,
    metric,
    until,
)
from tests.worker.server.stand_in import CONTEXT, Trick, trick_token, vector

PATH = "/v1/embeddings"
TEXT = "the function returns a list of the names"
TOKENIZER = Tokenizer(MODEL)
BUSY, QUEUED, SHOWN = map(trick_token, (Trick.BUSY, Trick.QUEUED, Trick.SHOWN))


async def ids_of(text: str) -> list[int]:
    return (await TOKENIZER.encode(text)).token_ids


def body_of(given: object, **fields: object) -> dict[str, object]:
    return {"model": MODEL_NAME, "input": given, **fields}


async def error_of(http: aiohttp.ClientSession, body: Any, **more: Any) -> tuple[int, Any]:
    async with http.post(PATH, json=body, **more) as answer:
        return answer.status, (await answer.json())["error"]


async def test_texts_and_token_ids_are_embedded_in_their_order(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    texts = [f"{TEXT} {number}" for number in range(20)]
    for given, prompts in (
        (TEXT, [ids]),
        (ids, [ids]),
        ([ids, ids[:3]], [ids, ids[:3]]),
        (texts, [await ids_of(text) for text in texts]),
    ):
        done = await client.embeddings.create(model=MODEL_NAME, input=given, user="someone")
        assert (done.object, done.model) == ("list", MODEL_NAME)
        assert [(one.index, one.object) for one in done.data] == [
            (index, "embedding") for index in range(len(prompts))
        ]
        for one, prompt in zip(done.data, prompts, strict=True):
            assert one.embedding == pytest.approx(vector(prompt), rel=1e-6)
        assert done.usage.prompt_tokens == done.usage.total_tokens == sum(map(len, prompts))


async def test_numbers_come_as_a_list_or_in_base64(http: aiohttp.ClientSession) -> None:
    expected = vector(await ids_of(TEXT))
    for form in ("base64", "float", None):
        async with http.post(PATH, json=body_of(TEXT, encoding_format=form)) as answer:
            [one] = (await answer.json())["data"]
        found = one["embedding"]
        if form == "base64":
            found = np.frombuffer(b64decode(found), dtype="<f4").tolist()
        assert found == pytest.approx(expected, rel=1e-6)


async def test_fewer_dimensions_are_the_first_ones_with_length_1(
    client: openai.AsyncOpenAI, http: aiohttp.ClientSession
) -> None:
    first = np.array(vector(await ids_of(TEXT))[:2])
    expected = pytest.approx(first / np.linalg.norm(first), rel=1e-6)
    for form in (openai.omit, "float"):
        done = await client.embeddings.create(
            model=MODEL_NAME, input=TEXT, dimensions=2, encoding_format=form
        )
        assert done.data[0].embedding == expected
    status, error = await error_of(http, body_of([TEXT] * 3, dimensions=5))
    assert (status, error["param"]) == (400, "dimensions")
    assert error["message"] == "dimensions is 5; this model has only 4"


async def test_more_dimensions_than_the_config_has_are_refused_before_anything_runs(
    http: aiohttp.ClientSession,
) -> None:
    config = json.loads((MODEL / "config.json").read_text())
    body = body_of([BUSY], dimensions=config["hidden_size"] + 1)
    status, error = await error_of(http, body)  # the scheduler's error would be that it is full
    assert (status, error["param"]) == (400, "dimensions")


async def test_prompt_and_cached_tokens_of_all_inputs_are_reported(
    client: openai.AsyncOpenAI,
) -> None:
    prompts = [[5, 4, 3, 2, 1], [9, 9, 9]]
    for cached in (0, 6):
        raw = await client.embeddings.with_raw_response.create(model=MODEL_NAME, input=prompts)
        assert raw.headers["x-pando-prompt-tokens"] == "8"
        assert raw.headers["x-pando-cached-tokens"] == str(cached)
        assert json.loads(raw.text)["usage"] == {
            "prompt_tokens": 8,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": None}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": [3072]}, "input"),
        ({"input": [7] * (CONTEXT + 1)}, "input"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"priority": 3}, "priority"),
    ],
)
async def test_what_cannot_be_embedded_is_refused(
    http: aiohttp.ClientSession, fields: dict[str, object], param: str
) -> None:
    status, error = await error_of(http, body_of("a") | fields)
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["param"].startswith(param)


async def test_another_model_is_refused(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        await client.embeddings.create(model="other", input="a")


async def test_a_prompt_may_fill_the_context_and_is_cut_where_asked(
    client: openai.AsyncOpenAI,
) -> None:
    long = list(range(CONTEXT + 10))
    for prompt, keep, expected in (
        (long[:CONTEXT], None, long[:CONTEXT]),
        (long, -1, long[10:]),
        (long, 3, long[-3:]),
    ):
        done = await client.embeddings.create(
            model=MODEL_NAME, input=prompt, extra_body={"truncate_prompt_tokens": keep}
        )
        assert done.data[0].embedding == pytest.approx(vector(expected), rel=1e-6)


async def test_the_scheduler_gets_priority_deadline_and_pooling(
    rich_http: aiohttp.ClientSession,
) -> None:
    headers = {"x-request-timeout-ms": "20000"}
    status, error = await error_of(rich_http, body_of([SHOWN], priority=7), headers=headers)
    command = json.loads(error["message"])
    assert (status, command["priority"], command["pooling"]) == (400, 7, "last")
    assert 10 < command["deadline_s"] < 20


async def test_one_input_that_fails_fails_the_request_and_ends_the_others(
    http: aiohttp.ClientSession,
) -> None:
    aborted = await metric(http, "pando_worker_aborted_requests_total")
    status, error = await error_of(http, body_of([[QUEUED], [5], [BUSY]]))
    assert (status, error["code"]) == (503, "queue_full")
    await idle(http, aborted=aborted + 1)


async def test_more_inputs_than_run_at_once_take_turns(client: openai.AsyncOpenAI) -> None:
    prompts = [[number % 3000 + 1, 7] for number in range(MAX_INPUTS)]
    done = await client.embeddings.create(model=MODEL_NAME, input=prompts)
    for one, prompt in zip(done.data, prompts, strict=True):
        assert one.embedding == pytest.approx(vector(prompt), rel=1e-6)


async def test_a_request_that_waits_too_long_gets_504(http: aiohttp.ClientSession) -> None:
    # More than run at once: those that were not sent yet are also late.
    body = body_of([[QUEUED]] * 20)
    status, error = await error_of(http, body, headers={"x-request-timeout-ms": "50"})
    assert (status, error["code"]) == (504, "deadline_exceeded")
    await idle(http)


async def test_an_embedding_aborted_by_name_ends_with_409(http: aiohttp.ClientSession) -> None:
    body = body_of([[QUEUED], [QUEUED]])
    waiting = asyncio.create_task(error_of(http, body, headers={"x-request-id": "unwanted"}))
    await running(http, 2)
    async with http.post("/abort_request", json={"rid": "unwanted"}) as answer:
        assert await answer.json() == {"aborted": 2}
    status, error = await waiting
    assert (status, error["code"]) == (409, "aborted")
    await idle(http)


async def test_a_client_that_leaves_ends_its_embeddings(http: aiohttp.ClientSession) -> None:
    aborted = await metric(http, "pando_worker_aborted_requests_total")
    waiting = asyncio.create_task(error_of(http, body_of([[QUEUED]] * 3)))
    await running(http, 3)
    waiting.cancel()
    await idle(http, aborted=aborted + 3)


@pytest.mark.e2e
async def test_a_scheduler_that_dies_ends_embeddings_with_503() -> None:
    with WorkerProcess.start() as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            waiting = asyncio.create_task(error_of(http, body_of([QUEUED])))
            await running(http, 1)
            worker.scheduler().kill()
            status, error = await waiting
    assert (status, error["code"]) == (503, "engine_gone")


async def test_latencies_of_embeddings_are_measured(
    client: openai.AsyncOpenAI, http: aiohttp.ClientSession
) -> None:
    names = ["queue_time_seconds", "request_duration_seconds"]
    counts = [f"pando_worker_{name}_count" for name in names]
    before = [await metric(http, name) for name in counts]
    await client.embeddings.create(model=MODEL_NAME, input=["a", "b", "c"])
    assert [await metric(http, name) for name in counts] == [count + 3 for count in before]


async def running(http: aiohttp.ClientSession, count: int) -> None:
    async def reached() -> bool:
        return await metric(http, "pando_worker_running_requests") == count

    await until(reached)


async def idle(http: aiohttp.ClientSession, *, aborted: float | None = None) -> None:
    """Waits until nothing runs and `aborted` requests were aborted."""
    if aborted is not None:

        async def counted() -> bool:
            return await metric(http, "pando_worker_aborted_requests_total") == aborted

        await until(counted)
    await running(http, 0)
