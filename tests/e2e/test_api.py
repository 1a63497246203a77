"""The OpenAI API of a whole fleet, with OpenAI's own client through the router."""

import json
import shutil
import subprocess
import uuid
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.waiting import PATIENCE_S, until_async

pytestmark = pytest.mark.e2e

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is a list?"}]


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_the_command_that_pando_up_prints_gets_an_answer(up: UpProcess) -> None:
    lines = up.welcome.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith("curl "))
    command = "\n".join(lines[start : start + 2])
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert json.loads(result.stdout)["choices"][0]["message"]["content"]


async def test_models_lists_the_one_that_is_served(client: openai.AsyncOpenAI) -> None:
    assert [model.id for model in (await client.models.list()).data] == [MODEL]


async def test_a_chat_is_answered_with_text_and_usage(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=24)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 24
    total = answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.total_tokens == total


async def test_a_completion_continues_text_and_token_ids_alike(
    client: openai.AsyncOpenAI, http: aiohttp.ClientSession, up: UpProcess
) -> None:
    prompt = "Return a new list"
    body = {"model": MODEL, "prompt": prompt}
    async with http.post(f"{up.replicas()['worker-0']['url']}/tokenize", json=body) as answer:
        tokens = (await answer.json())["tokens"]
    options: dict[str, Any] = {"model": MODEL, "max_tokens": 16, "temperature": 0}
    of_text = await client.completions.create(prompt=prompt, **options)
    of_tokens = await client.completions.create(prompt=tokens, **options)
    assert of_text.choices[0].text
    assert of_text.choices[0].text == of_tokens.choices[0].text
    assert of_tokens.usage is not None
    assert of_tokens.usage.prompt_tokens == len(tokens)


async def test_a_stream_gives_the_same_text_in_parts_and_its_usage_last(
    client: openai.AsyncOpenAI,
) -> None:
    # Many tokens, as a busy machine may deliver late ones together.
    options: dict[str, Any] = {
        "model": MODEL,
        "messages": QUESTION,
        "max_tokens": 400,
        "temperature": 0,
        "extra_body": {"ignore_eos": True},
    }
    whole = await client.chat.completions.create(**options)
    stream = await client.chat.completions.create(
        stream=True, stream_options={"include_usage": True}, **options
    )
    chunks = [chunk async for chunk in stream]
    deltas = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(deltas) == whole.choices[0].message.content
    assert len([delta for delta in deltas if delta]) > 1
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_embeddings_of_the_same_text_find_its_prefix(client: openai.AsyncOpenAI) -> None:
    text = "Return a new list of the names that begin with a vowel. " * 12
    first = await client.embeddings.with_raw_response.create(model=MODEL, input=[text, "a"])
    again = await client.embeddings.with_raw_response.create(model=MODEL, input=text)
    assert again.headers["x-pando-replica"] == first.headers["x-pando-replica"]
    assert int(again.headers["x-pando-cached-tokens"]) > 0
    one, other = (raw.parse().data[0].embedding for raw in (first, again))
    assert one == pytest.approx(other, abs=1e-5)
    assert sum(number * number for number in one) == pytest.approx(1, abs=1e-5)


async def test_the_second_turn_finds_the_first_in_the_cache(client: openai.AsyncOpenAI) -> None:
    system = f"Run {uuid.uuid4()}. " + "You explain the Python language in short sentences. " * 30
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": system}, *QUESTION]
    first = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=messages, max_tokens=16
    )
    answer = first.parse()
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0

    messages.append({"role": "assistant", "content": answer.choices[0].message.content})
    messages.append({"role": "user", "content": "And a tuple?"})
    second = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=messages, max_tokens=16
    )
    usage = second.parse().usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens is not None
    assert usage.prompt_tokens_details.cached_tokens > 0.9 * answer.usage.prompt_tokens
    assert second.headers["x-pando-replica"] == first.headers["x-pando-replica"]


async def test_a_stop_string_ends_the_answer_in_front_of_it(client: openai.AsyncOpenAI) -> None:
    options: dict[str, Any] = {"model": MODEL, "prompt": "Return the", "temperature": 0}
    whole = (await client.completions.create(max_tokens=32, **options)).choices[0].text
    stop = whole[len(whole) // 2 :][:4]
    assert stop
    stopped = (await client.completions.create(max_tokens=32, stop=stop, **options)).choices[0]
    assert stopped.text == whole[: whole.index(stop)]
    assert stopped.finish_reason == "stop"


async def test_a_seed_makes_sampling_repeatable(client: openai.AsyncOpenAI) -> None:
    async def sample(seed: int) -> str:
        answer = await client.completions.create(
            model=MODEL, prompt="The", max_tokens=48, temperature=1.5, seed=seed
        )
        return answer.choices[0].text

    assert await sample(7) == await sample(7)
    assert await sample(7) != await sample(8)


async def test_a_body_that_is_not_json_is_refused(
    http: aiohttp.ClientSession, up: UpProcess
) -> None:
    async with http.post(f"{up.url}/v1/chat/completions", data=b'{"model": ') as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
    assert error["type"] == "invalid_request_error"
    assert "JSON" in error["message"]


async def test_an_unknown_model_is_refused_with_those_that_exist(
    client: openai.AsyncOpenAI,
) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        await client.chat.completions.create(model="gpt-17", messages=QUESTION)
    assert refusal.value.code == "model_not_found"
    assert "gpt-17" in refusal.value.message
    assert MODEL in refusal.value.message


async def test_a_prompt_longer_than_the_context_is_refused(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.completions.create(model=MODEL, prompt="many words " * 5000)
    assert refusal.value.code == "context_length_exceeded"


async def test_a_negative_max_tokens_is_refused(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=-1)
    assert refusal.value.param == "max_tokens"


async def test_a_field_that_nobody_knows_does_no_harm(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=4, extra_body={"not_a_field": {"a": [1]}}
    )
    assert answer.choices[0].message.content is not None


async def test_a_request_id_is_the_same_in_the_answer_and_both_logs(
    client: openai.AsyncOpenAI, up: UpProcess
) -> None:
    request_id = f"e2e-{uuid.uuid4()}"
    answer = await client.completions.with_raw_response.create(
        model=MODEL, prompt="x", max_tokens=1, extra_headers={"x-request-id": request_id}
    )
    assert answer.headers["x-request-id"] == request_id
    replica = answer.headers["x-pando-replica"]

    def logged_by() -> set[str]:
        return {line["process"] for line in up.log if line.get("request_id") == request_id}

    await until_async(lambda: logged_by() == {"router", replica}, "both have logged it")


async def test_a_client_that_goes_away_frees_its_kv_tokens(
    client: openai.AsyncOpenAI, up: UpProcess
) -> None:
    stream = await client.completions.create(
        model=MODEL,
        prompt="Count without end:",
        max_tokens=3500,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    replica = stream.response.headers["x-pando-replica"]
    aborted = up.metric(replica, "pando_worker_aborted_requests_total")
    await anext(aiter(stream))
    pinned = 'pando_worker_kv_tokens{state="pinned"}'
    await until_async(lambda: up.metric(replica, pinned) > 0, "its KV tokens are pinned")

    await stream.close()

    await until_async(lambda: up.metric(replica, pinned) == 0, "its KV tokens are free")
    assert up.metric(replica, "pando_worker_running_requests") == 0
    assert up.metric(replica, "pando_worker_aborted_requests_total") == aborted + 1


async def test_responses_go_on_from_each_other_through_the_router(
    client: openai.AsyncOpenAI,
) -> None:
    """Each finds the one before it where that was made, and its conversation in the cache."""
    say: dict[str, Any] = {"model": MODEL, "max_output_tokens": 16, "temperature": 0}
    earlier, seen = None, 0
    for turn in ("What is a list? " * 8, "And a tuple?", "And a set?"):
        response = await client.responses.create(
            input=turn, previous_response_id=earlier.id if earlier else None, **say
        )
        assert response.usage is not None
        if earlier is not None:
            assert response.usage.input_tokens > seen
            assert response.usage.input_tokens_details.cached_tokens > seen // 2
        earlier, seen = response, response.usage.input_tokens
    assert await client.responses.retrieve(response.id) == response
    await client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


async def test_an_agents_turns_in_anthropics_form_find_their_prefix(up: UpProcess) -> None:
    """A long system prompt, whole conversations, and streams, with Anthropic's own client."""
    system = [
        {
            "type": "text",
            "text": "You are an agent that edits files. " * 12,
            "cache_control": {"type": "ephemeral"},
        }
    ]
    messages: list[Any] = []
    cached: list[int] = []
    async with anthropic.AsyncAnthropic(
        base_url=up.url, api_key="none", max_retries=0, timeout=PATIENCE_S
    ) as client:
        for turn in ("Read the file.", "Change the first line.", "Check it."):
            messages.append({"role": "user", "content": turn})
            async with client.messages.stream(
                model=MODEL,
                max_tokens=16,
                system=system,  # type: ignore[arg-type]
                messages=messages,
                extra_body={"temperature": 0},
            ) as stream:
                answer = await stream.get_final_message()
            messages.append({"role": "assistant", "content": answer.content})
            cached.append(answer.usage.cache_read_input_tokens or 0)
    assert cached[0] < cached[1] < cached[2]
