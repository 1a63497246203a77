"""The API on the real scheduler and the shipped model: behaviour that only the whole engine has."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import openai
import pytest
import torch
from transformers import AutoModelForCausalLM

from pando_worker.server.text.tokenizer import Tokenizer
from tests.worker.server.process.worker_process import MODEL, MODEL_NAME, WorkerProcess

pytestmark = pytest.mark.e2e

PROMPT = "Return a new list of the names"
TOKENIZER = Tokenizer(MODEL)
CHAT: Any = [{"role": "user", "content": "What is a list?"}]


@pytest.fixture(scope="module")
def engine() -> Iterator[WorkerProcess]:
    with WorkerProcess.start(stand_in=False, threads=1) as worker:
        yield worker


@pytest.fixture
async def client(engine: WorkerProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with engine.client() as client:
        yield client


@pytest.fixture(scope="module")
def reference() -> Any:
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


async def test_logprobs_equal_those_of_transformers(
    client: openai.AsyncOpenAI, engine: WorkerProcess, reference: Any
) -> None:
    for _ in range(2):  # the second one may use the cache
        done = await client.completions.create(
            model=MODEL_NAME, prompt=PROMPT, max_tokens=12, temperature=0, logprobs=3, echo=True
        )
        found = done.choices[0].logprobs
        assert found is not None and found.token_logprobs is not None
        async with aiohttp.ClientSession(engine.url) as http:
            body = {
                "text": PROMPT,
                "sampling_params": {"max_new_tokens": 12, "temperature": 0},
                "return_logprob": True,
                "logprob_start_len": 0,
                "top_logprobs_num": 3,
            }
            async with http.post("/generate", json=body) as answer:
                meta = (await answer.json())["meta_info"]
        entries = meta["input_token_logprobs"] + meta["output_token_logprobs"]
        ids = torch.tensor([token_id for _, token_id, _ in entries])
        with torch.no_grad():
            scores = reference(ids[None]).logits[0].log_softmax(-1)
        expected = scores[:-1].gather(1, ids[1:, None])[:, 0]
        for given in (found.token_logprobs[1:], [value for value, *_ in entries[1:]]):
            torch.testing.assert_close(torch.tensor(given), expected, atol=1e-4, rtol=0)
        tops = meta["input_top_logprobs"][1:] + meta["output_top_logprobs"]
        likeliest = scores[:-1].topk(3).indices.tolist()
        assert [[token_id for _, token_id, _ in top] for top in tops] == likeliest


async def test_choices_are_those_of_single_requests_with_their_seeds(
    client: openai.AsyncOpenAI,
) -> None:
    options: dict[str, Any] = {
        "model": MODEL_NAME, "prompt": PROMPT, "max_tokens": 12, "temperature": 1.3
    }  # fmt: skip
    three = (await client.completions.create(n=3, seed=40, **options)).choices
    single = [await client.completions.create(seed=40 + i, **options) for i in range(3)]
    assert [choice.text for choice in three] == [one.choices[0].text for one in single]
    assert len({choice.text for choice in three}) == 3


async def test_a_bias_decides_the_tokens(client: openai.AsyncOpenAI) -> None:
    done = await client.completions.create(
        model=MODEL_NAME, prompt=PROMPT, max_tokens=4, temperature=0, logit_bias={"70": 100}
    )
    assert done.choices[0].text == TOKENIZER.decode([70] * 4)


async def test_a_pattern_holds_in_every_choice(client: openai.AsyncOpenAI) -> None:
    done = await client.completions.create(
        model=MODEL_NAME,
        prompt=PROMPT,
        max_tokens=30,
        n=3,
        temperature=1.5,
        extra_body={"regex": "[0-9]{3}-[a-f]{2,4}"},
    )
    for choice in done.choices:
        assert re.fullmatch("[0-9]{3}-[a-f]{2,4}", choice.text)
        assert choice.finish_reason == "stop"


@pytest.mark.parametrize(
    "constraint",
    [{"ebnf": "root ::= root"}, {"regex": r"[^\s\S]"}, {"json_schema": '{"$ref": "#"}'}],
)
async def test_a_grammar_that_nothing_fits_is_refused(
    client: openai.AsyncOpenAI, constraint: dict[str, str]
) -> None:
    with pytest.raises(openai.BadRequestError, match="allows no output"):
        await client.completions.create(
            model=MODEL_NAME, prompt=PROMPT, max_tokens=8, n=2, extra_body=constraint
        )


async def test_a_required_call_has_arguments_that_fit(client: openai.AsyncOpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"day": {"enum": ["today", "tomorrow"]}},
        "required": ["day"],
        "additionalProperties": False,
    }
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": schema}}]
    done = await client.chat.completions.create(
        model=MODEL_NAME,
        messages=CHAT,
        max_tokens=120,
        tools=tools,
        tool_choice="required",
        parallel_tool_calls=False,
    )
    [choice] = done.choices
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls or []
    assert call.type == "function" and call.function.name == "weather"
    assert json.loads(call.function.arguments)["day"] in ("today", "tomorrow")


async def test_json_by_a_schema_is_short_and_complete(client: openai.AsyncOpenAI) -> None:
    """A model of 2.4 million parameters would write white space between tokens without end."""
    schema = {
        "type": "object",
        "properties": {
            "kinds": {"type": "array", "items": {"enum": ["list", "dict"]}, "maxItems": 3},
            "ordered": {"type": "boolean"},
        },
        "required": ["kinds", "ordered"],
        "additionalProperties": False,
    }
    longest = '{"kinds": ["list", "list", "list"], "ordered": false}'
    done = await client.chat.completions.create(
        model=MODEL_NAME,
        messages=CHAT,
        n=4,
        max_tokens=len(longest),  # a token has at least one byte
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    )
    for choice in done.choices:
        assert choice.finish_reason == "stop"
        assert json.loads(choice.message.content or "").keys() == {"kinds", "ordered"}


async def test_json_that_is_cut_says_so(client: openai.AsyncOpenAI) -> None:
    done = await client.chat.completions.create(
        model=MODEL_NAME, messages=CHAT, max_tokens=2, response_format={"type": "json_object"}
    )
    assert done.choices[0].finish_reason == "length"


async def test_the_bounds_of_every_field_harm_nobody(engine: WorkerProcess) -> None:
    highest = 3071  # token id
    odd: list[dict[str, Any]] = [
        {"top_k": 2**31 - 1},
        {"stop_token_ids": [highest], "min_new_tokens": 3},
        {"logit_bias": {str(id): -100 for id in range(highest, highest - 1024, -1)}},
        {"temperature": 1e-45},
        {"temperature": 2, "top_p": 1e-300},
        {"temperature": 2, "min_p": 1.0, "top_p": 1.0},
        {"repetition_penalty": 0.01, "presence_penalty": -2.0, "frequency_penalty": 2.0},
        {"repetition_penalty": 100.0},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1, "n": 3},
    ]
    scores = {"return_logprob": True, "top_logprobs_num": 20, "logprob_start_len": 2**31 - 1}
    async with aiohttp.ClientSession(engine.url) as http:
        for sampling in odd:
            body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 3, **sampling}, **scores}
            async with http.post("/generate", json=body) as answer:
                assert answer.status == 200, (sampling, await answer.text())


async def test_a_stream_ends_at_its_deadline(engine: WorkerProcess) -> None:
    sampling = {"max_new_tokens": 3500, "ignore_eos": True}
    body = {"text": PROMPT, "stream": True, "sampling_params": sampling}
    headers = {"x-request-timeout-ms": "400"}
    async with (
        aiohttp.ClientSession(engine.url) as http,
        http.post("/generate", json=body, headers=headers) as answer,
    ):
        last = (await answer.text()).strip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "deadline_exceeded"
