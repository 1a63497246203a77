"""/v1/responses, with OpenAI's own client.

The stand-in answers with the last message's text, parsed like a model that writes Hermes' calls and
Qwen 3's reasoning.
"""

import json
from typing import Any

import aiohttp
import openai
import pytest

from tests.worker.server.process.worker_process import MODEL_NAME
from tests.worker.server.stand_in import Trick
from tests.worker.server.test_tools import ANSWER, PARAMETERS

TOOLS: list[Any] = [
    {"type": "function", "name": name, "parameters": PARAMETERS, "strict": False}
    for name in ("weather", "time")
]


def asking(answer: Any, **fields: Any) -> dict[str, Any]:
    return {
        "model": MODEL_NAME,
        "input": answer,
        "max_output_tokens": 200,
        "extra_body": {"seed": Trick.ANSWERS},
        **fields,
    }


async def test_a_text_is_answered(rich_client: openai.AsyncOpenAI) -> None:
    response = await rich_client.responses.create(**asking("Fine, thanks.", metadata={"a": "b"}))
    assert response.output_text == "Fine, thanks."
    assert response.status == "completed"
    assert response.metadata == {"a": "b"}
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 0
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


async def test_reasoning_and_calls_are_items(rich_client: openai.AsyncOpenAI) -> None:
    response = await rich_client.responses.create(**asking(ANSWER, tools=TOOLS))
    reasoning, message, weather, time = (item.model_dump() for item in response.output)
    assert [part["text"] for part in reasoning["content"]] == ["Both."]
    assert message["content"][0]["text"].strip() == "One moment."
    assert (weather["type"], weather["name"]) == ("function_call", "weather")
    assert json.loads(weather["arguments"]) == {"city": "Ulm"}
    assert json.loads(time["arguments"]) == {"city": "Bonn"}
    assert len({weather["id"], weather["call_id"], time["id"], time["call_id"]}) == 4
    assert response.usage is not None
    thought = response.usage.output_tokens_details.reasoning_tokens
    assert 0 < thought < response.usage.output_tokens


async def test_a_stream_puts_together_to_the_same_response(
    rich_client: openai.AsyncOpenAI,
) -> None:
    """The client's own accumulator checks places and order of the events."""
    whole = await rich_client.responses.create(**asking(ANSWER, tools=TOOLS))
    numbers, kinds = [], []
    async with rich_client.responses.stream(**asking(ANSWER, tools=TOOLS)) as stream:
        async for event in stream:
            numbers.append(event.sequence_number)
            kinds.append(event.type)
        streamed = await stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert (
        kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 4
    )
    assert [_bare(item) for item in streamed.output] == [_bare(item) for item in whole.output]
    assert streamed.usage is not None and whole.usage is not None
    assert streamed.usage.output_tokens_details == whole.usage.output_tokens_details


SCORED = ["message.output_text.logprobs"]


async def test_each_text_has_the_log_probabilities_of_its_own_tokens(
    rich_client: openai.AsyncOpenAI,
) -> None:
    """None of those of reasoning and calls; in a stream, those of each delta."""
    fields = asking(ANSWER, tools=TOOLS, include=SCORED, top_logprobs=2)
    response = await rich_client.responses.create(**fields)
    [text] = [part for item in response.output for part in _texts_of(item)]
    assert response.top_logprobs == 2
    assert text.logprobs is not None
    assert spelled(text.logprobs).strip() == text.text
    assert {len(token.top_logprobs) for token in text.logprobs} == {2}
    streamed: list[Any] = []
    async with rich_client.responses.stream(**fields) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                assert event.delta in "".join(token.token for token in event.logprobs)
                streamed += event.logprobs
            elif event.type == "response.output_text.done":
                assert _values(event.logprobs) == _values(text.logprobs)
        final = await stream.get_final_response()
    [again] = [part for item in final.output for part in _texts_of(item)]
    assert _values(streamed) == _values(again.logprobs or ()) == _values(text.logprobs)


async def test_log_probabilities_are_those_of_a_chat(rich_client: openai.AsyncOpenAI) -> None:
    said = "Grüße, 世界 🙂"
    chat = await rich_client.chat.completions.create(
        model=MODEL_NAME,
        messages=[{"role": "user", "content": said}],
        max_tokens=200,
        logprobs=True,
        top_logprobs=3,
        extra_body={"seed": Trick.ANSWERS},
    )
    scores = chat.choices[0].logprobs
    assert scores is not None and scores.content
    for asked in ({"top_logprobs": 3}, {"top_logprobs": 3, "include": SCORED}):
        response = await rich_client.responses.create(**asking(said, **asked))
        [[text]] = [_texts_of(item) for item in response.output]
        assert _values(text.logprobs or ()) == _values(scores.content)
        assert spelled(text.logprobs) == said
    alone = await rich_client.responses.create(**asking(said, include=SCORED))
    [[text]] = [_texts_of(item) for item in alone.output]
    assert [token.top_logprobs for token in text.logprobs] == [[]] * len(scores.content)
    none = await rich_client.responses.create(**asking(said))
    [[text]] = [_texts_of(item) for item in none.output]
    assert text.logprobs == []


def spelled(tokens: Any) -> str:
    return bytes(byte for token in tokens for byte in token.bytes).decode()


def _texts_of(item: Any) -> list[Any]:
    return item.content if item.type == "message" else []


def _values(tokens: Any) -> list[tuple[str, float]]:
    return [(token.token, token.logprob) for token in tokens]


async def test_what_the_deltas_say_is_what_is_done(rich_client: openai.AsyncOpenAI) -> None:
    texts: dict[str, str] = {}
    done: dict[str, str] = {}
    async for event in await rich_client.responses.create(
        stream=True, **asking(ANSWER, tools=TOOLS)
    ):
        match event.type:
            case (
                "response.output_text.delta"
                | "response.reasoning_text.delta"
                | "response.function_call_arguments.delta"
            ):
                texts[event.item_id] = texts.get(event.item_id, "") + event.delta
            case "response.output_text.done" | "response.reasoning_text.done":
                done[event.item_id] = event.text
            case "response.function_call_arguments.done":
                done[event.item_id] = event.arguments
    assert texts == done
    assert len(done) == 4


async def test_a_response_goes_on_from_an_earlier_one(
    rich_client: openai.AsyncOpenAI, rich_http: aiohttp.ClientSession
) -> None:
    """The prompt is the conversation so far; the instructions are not repeated."""
    first = await rich_client.responses.create(**asking("Red.", instructions="Be brief."))
    second = await rich_client.responses.create(**asking("Blue.", previous_response_id=first.id))
    third = await rich_client.responses.create(**asking("Green.", previous_response_id=second.id))
    chat = [
        {"role": role, "content": text}
        for text in ("Red.", "Blue.")
        for role in ("user", "assistant")
    ]
    body = {"messages": [*chat, {"role": "user", "content": "Green."}]}
    async with rich_http.post("/tokenize", json=body) as answer:
        expected = (await answer.json())["count"]
    assert third.usage is not None and third.usage.input_tokens == expected
    assert third.previous_response_id == second.id
    listed = await rich_client.responses.input_items.list(third.id, order="asc", limit=3)
    [part] = listed.data[0].model_dump()["content"]
    assert (part["type"], part["text"]) == ("input_text", "Red.")
    last = listed.data[-1].model_dump()["id"]
    rest = await rich_client.responses.input_items.list(third.id, order="asc", after=last)
    assert (len(listed.data), len(rest.data)) == (3, 2)


async def test_a_kept_response_is_read_and_deleted(rich_client: openai.AsyncOpenAI) -> None:
    made = await rich_client.responses.create(**asking("Red."))
    assert await rich_client.responses.retrieve(made.id) == made
    with pytest.raises(openai.BadRequestError, match="in the background"):
        await rich_client.responses.cancel(made.id)
    await rich_client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await rich_client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError, match="is not kept here") as refused:
        await rich_client.responses.create(**asking("Blue.", previous_response_id=made.id))
    assert refused.value.code == "previous_response_not_found"


async def test_one_that_is_not_stored_is_not_kept(rich_client: openai.AsyncOpenAI) -> None:
    made = await rich_client.responses.create(**asking("Red.", store=False))
    with pytest.raises(openai.NotFoundError):
        await rich_client.responses.retrieve(made.id)


async def test_a_tenant_does_not_find_what_another_keeps(
    rich_http: aiohttp.ClientSession,
) -> None:
    mine, yours = {"x-pando-tenant": "a"}, {"x-pando-tenant": "b"}
    body = {"model": MODEL_NAME, "input": "Red.", "seed": Trick.ANSWERS}
    async with rich_http.post("/v1/responses", json=body, headers=mine) as answer:
        path = "/v1/responses/" + (await answer.json())["id"]
    async with rich_http.get(path, headers=yours) as answer:
        assert answer.status == 404
    async with rich_http.delete(path, headers=yours) as answer:
        assert answer.status == 404
    goes_on = body | {"previous_response_id": path.rpartition("/")[2]}
    async with rich_http.post("/v1/responses", json=goes_on, headers=yours) as answer:
        assert (await answer.json())["error"]["code"] == "previous_response_not_found"
    async with rich_http.get(path, headers=mine) as answer:
        assert answer.status == 200


async def test_the_limit_makes_it_incomplete(rich_client: openai.AsyncOpenAI) -> None:
    cut = await rich_client.responses.create(**asking("one two three four", max_output_tokens=2))
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


async def test_items_are_the_chat_that_says_the_same(
    rich_client: openai.AsyncOpenAI, rich_http: aiohttp.ClientSession
) -> None:
    function = {"name": "time", "arguments": '{"city": "Bonn"}'}
    items: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "What time is it?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": []},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c", **function},
        {"type": "function_call_output", "call_id": "c", "output": "noon"},
    ]
    response = await rich_client.responses.create(**asking(items, max_output_tokens=1))
    call = {"id": "c", "type": "function", "function": function}
    chat = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "noon"},
    ]
    async with rich_http.post("/tokenize", json={"messages": chat}) as answer:
        assert response.usage is not None
        assert response.usage.input_tokens == (await answer.json())["count"]


async def test_truncation_keeps_the_last_turns_that_fit(rich_client: openai.AsyncOpenAI) -> None:
    turn = "word " * 120
    turns: list[Any] = []
    for number in range(30):
        turns += [{"role": "user", "content": f"{number} {turn}"}]
        turns += [{"role": "assistant", "content": "Fine."}]
    fields = asking([*turns, {"role": "user", "content": "Last."}], max_output_tokens=20)
    with pytest.raises(openai.BadRequestError, match="context has 2048 tokens"):
        await rich_client.responses.create(**fields)
    response = await rich_client.responses.create(**fields, truncation="auto")
    assert (response.truncation, response.output_text) == ("auto", "Last.")
    assert response.usage is not None
    one = await rich_client.responses.create(**fields | {"input": [turns[0], turns[1], turns[-2]]})
    assert one.usage is not None
    # One more turn of the user would not have fitted.
    assert 2048 - one.usage.input_tokens < response.usage.input_tokens <= 2048 - 20
    fields["input"] = [*turns, {"role": "user", "content": turn * 20}]
    with pytest.raises(openai.BadRequestError, match="context has 2048 tokens"):
        await rich_client.responses.create(**fields, truncation="auto")


async def test_a_text_by_schema(rich_client: openai.AsyncOpenAI) -> None:
    """The stand-in shows what the scheduler is asked for."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted: Any = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="json_schema"):
        await rich_client.responses.create(
            **asking("x", text=wanted, extra_body={"seed": Trick.SHOWN})
        )


async def test_only_allowed_tools_may_be_called(rich_client: openai.AsyncOpenAI) -> None:
    """The stand-in shows what the scheduler is asked for."""
    allowed: Any = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "time"}],
    }
    with pytest.raises(openai.BadRequestError, match="time") as shown:
        await rich_client.responses.create(
            **asking("x", tools=TOOLS, tool_choice=allowed, extra_body={"seed": Trick.SHOWN})
        )
    assert "weather" not in shown.value.message
    response = await rich_client.responses.create(**asking("x", tools=TOOLS, tool_choice=allowed))
    assert response.tool_choice.model_dump() == allowed


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"input": []}, "input", "input must not be empty"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "must be message"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role", "must be user"),
        ({"input": [{"role": "user"}]}, "input[0].content", "or a list of parts, not null"),
        ({"input": [{"role": "user", "content": [3]}]}, "input[0].content[0]", "an object"),
        ({"input": [{"type": ["x"]}]}, "input[0].type", "must be message"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
            "input[0].content[0].type",
            "input_text or input_image",
        ),
        (
            {
                "input": [
                    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "x"},
                    {"type": "function_call_output", "call_id": "1", "output": "y"},
                ]
            },
            "input[0].arguments",
            "is not a JSON object",
        ),
        ({"background": True}, "background", "not supported"),
        ({"top_logprobs": 21}, "top_logprobs", "between 0 and 20"),
        ({"truncation": "some"}, "truncation", "auto"),
        ({"include": ["file_search_call.results"]}, "include", "not supported"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "must be function"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "64 letters"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice", "tool_choice must be"),
        (
            {
                "tools": [{"type": "function", "name": "a"}],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "b"}],
                },
            },
            "tool_choice",
            "which is none of the tools",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}},
            "tool_choice",
            "tool_choice.tools[0] must be",
        ),
        ({"text": {"format": {"type": "xml"}}}, "text.format", "must be of type"),
        ({"text": {"format": 3}}, "text.format", "must be an object, not 3"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort", "must be a string, not 3"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"previous_response_id": "resp_x"}, "previous_response_id", "is not kept here"),
        ({"model": "gpt-6"}, "model", "does not exist"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    rich_http: aiohttp.ClientSession, fields: dict[str, Any], param: str, says: str
) -> None:
    body = {"model": MODEL_NAME, "input": "Hello", **fields}
    async with rich_http.post("/v1/responses", json=body) as answer:
        error = (await answer.json())["error"]
        assert (answer.status, error["param"]) == (404 if "model" in fields else 400, param), error
    assert says in error["message"]


def _bare(item: Any) -> dict[str, Any]:
    """Without what differs between two answers."""
    left_out = {"id", "call_id", "parsed_arguments", "content"}
    fields: dict[str, Any] = item.model_dump(exclude=left_out)
    texts = [part.text for part in getattr(item, "content", None) or ()]
    return fields | {"texts": texts}
