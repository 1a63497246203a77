"""Several choices and prompts in one request, with OpenAI's own client and in SGLang's form."""

import asyncio
import json
from collections import defaultdict
from typing import Any

import aiohttp
import openai
import pytest

from pando_worker.server.text.tokenizer import Tokenizer
from tests.worker.server.process.worker_process import (
    MODEL,
    MODEL_NAME,
    WorkerProcess,
    metric,
    until,
)
from tests.worker.server.stand_in import Trick, score

TEXT = "the function returns a list of the names"
TOKENIZER = Tokenizer(MODEL)


async def ids_of(text: str) -> list[int]:
    return (await TOKENIZER.encode(text)).token_ids


async def rotations(count: int) -> list[str]:
    """The stand-in's answers to TEXT under the trick ROTATED, by choice."""
    ids = await ids_of(TEXT)
    return [TOKENIZER.decode(ids[i:] + ids[:i]) for i in range(count)]


async def test_n_choices_have_one_seed_after_the_other_and_count_the_prompt_once(
    client: openai.AsyncOpenAI,
) -> None:
    ids = await ids_of(TEXT)
    done = await client.completions.create(
        model=MODEL_NAME, prompt=TEXT, max_tokens=len(ids), n=3, seed=Trick.ROTATED
    )
    assert [choice.index for choice in done.choices] == [0, 1, 2]
    assert [choice.text for choice in done.choices] == await rotations(3)
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (len(ids), 3 * len(ids))


async def test_choices_of_a_stream_come_interleaved(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    stream = await client.completions.create(
        model=MODEL_NAME,
        prompt=TEXT,
        max_tokens=len(ids),
        n=3,
        seed=Trick.ROTATED,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts: dict[int, str] = defaultdict(str)
    order, finished = [], []
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            order.append(choice.index)
            finished += [choice.index] if choice.finish_reason else []
        usage = chunk.usage
    assert [texts[i] for i in range(3)] == await rotations(3)
    assert sorted(finished) == [0, 1, 2]
    assert order != sorted(order)
    assert usage is not None and usage.completion_tokens == 3 * len(ids)


async def test_every_choice_of_a_chat_begins_with_the_role(client: openai.AsyncOpenAI) -> None:
    options: dict[str, Any] = {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
        "n": 2,
        "extra_body": {"ignore_eos": True},
    }
    whole = await client.chat.completions.create(**options)
    assert [choice.index for choice in whole.choices] == [0, 1]
    chunks = [c async for c in await client.chat.completions.create(stream=True, **options)]
    first: dict[int, str | None] = {}
    for chunk in chunks:
        first.setdefault(chunk.choices[0].index, chunk.choices[0].delta.role)
    assert first == {0: "assistant", 1: "assistant"}


async def test_several_prompts_are_answered_in_their_order(client: openai.AsyncOpenAI) -> None:
    prompts = ["one two", "three four five"]
    ids = [await ids_of(prompt) for prompt in prompts]
    for given in (prompts, ids):
        done = await client.completions.create(
            model=MODEL_NAME, prompt=given, max_tokens=2, n=2, echo=True
        )
        assert [choice.index for choice in done.choices] == [0, 1, 2, 3]
        heads = [TOKENIZER.decode(one[:2]) for one in ids]
        expected = [prompt + head for prompt, head in zip(prompts, heads, strict=True)]
        assert [c.text for c in done.choices] == [text for text in expected for _ in range(2)]
        assert done.usage is not None
        assert done.usage.prompt_tokens == sum(map(len, ids))
        assert done.usage.completion_tokens == 8


async def test_best_of_gives_the_likeliest_by_mean_logprob(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    done = await client.completions.create(
        model=MODEL_NAME, prompt=TEXT, max_tokens=2, n=2, best_of=6, seed=Trick.ROTATED
    )
    samples = [(ids + ids)[i : i + 2] for i in range(6)]
    ranked = sorted(samples, key=lambda two: -sum(score(one, 0).logprob for one in two))
    assert [choice.text for choice in done.choices] == [TOKENIZER.decode(s) for s in ranked[:2]]
    assert [choice.logprobs for choice in done.choices] == [None, None]
    assert done.usage is not None and done.usage.completion_tokens == 12


async def test_one_choice_that_stops_leaves_the_others_running(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    done = await client.completions.create(
        model=MODEL_NAME,
        prompt=TEXT,
        max_tokens=len(ids) - 1,
        n=2,
        seed=Trick.ROTATED,
        stop=" names",
    )
    rotated = (await rotations(2))[1]
    assert [choice.finish_reason for choice in done.choices] == ["length", "stop"]
    assert done.choices[1].text == rotated[: rotated.index(" names")]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_choice_that_fails_ends_the_request_and_the_other_choices(
    http: aiohttp.ClientSession, stream: bool
) -> None:
    aborted = await metric(http, "pando_worker_aborted_requests_total")
    sampling = {"seed": Trick.SECOND_FAILS, "n": 3, "max_new_tokens": 200}
    body = {"text": TEXT, "stream": stream, "sampling_params": sampling}
    async with http.post("/generate", json=body) as answer:
        assert stream or answer.status == 500
        last = (await answer.text()).strip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "it failed while running"
    await until(lambda: _is(http, "pando_worker_aborted_requests_total", aborted + 2))
    await until(lambda: _is(http, "pando_worker_running_requests", 0))


async def test_a_client_that_leaves_aborts_all_choices(
    http: aiohttp.ClientSession, worker: WorkerProcess
) -> None:
    aborted = await metric(http, "pando_worker_aborted_requests_total")
    sampling = {"seed": Trick.SLOW, "n": 4, "max_new_tokens": 200}
    body = {"text": [TEXT, "another"], "stream": True, "sampling_params": sampling}
    async with aiohttp.ClientSession(worker.url) as leaving:
        answer = await leaving.post("/generate", json=body)
        await answer.content.readline()
    await until(lambda: _is(http, "pando_worker_aborted_requests_total", aborted + 8))


async def test_generate_answers_several_with_a_list(http: aiohttp.ClientSession) -> None:
    texts = [TEXT, "one two three"]
    body: dict[str, Any] = {"text": texts, "sampling_params": {"n": 2, "max_new_tokens": 3}}
    async with http.post("/generate", json=body) as answer:
        done = await answer.json()
    heads = [(await ids_of(text))[:3] for text in texts]
    assert [one["output_ids"] for one in done] == [heads[0], heads[0], heads[1], heads[1]]

    last: dict[int, list[int]] = {}
    async with http.post("/generate", json=body | {"stream": True}) as answer:
        assert "x-pando-cached-tokens" not in answer.headers, "not known of the second prompt yet"
        async for line in answer.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                last[event["index"]] = event["output_ids"]
    assert [last[i] for i in range(4)] == [one["output_ids"] for one in done]


async def test_abort_ends_all_choices(http: aiohttp.ClientSession) -> None:
    sampling = {"seed": Trick.SLOW, "n": 3, "max_new_tokens": 200}
    body = {"text": TEXT, "rid": "three", "sampling_params": sampling}
    running = asyncio.ensure_future(http.post("/generate", json=body))
    await until(lambda: _is(http, "pando_worker_running_requests", 3))
    async with http.post("/abort_request", json={"rid": "three"}) as answer:
        assert await answer.json() == {"aborted": 3}
    done = await (await running).json()
    assert {one["meta_info"]["finish_reason"]["type"] for one in done} == {"abort"}


async def _is(http: aiohttp.ClientSession, name: str, value: float) -> bool:
    return await metric(http, name) == value
