"""Tool calls and reasoning in chats, with OpenAI's own client.

The stand-in answers with the last message's text, parsed like a model that writes Hermes' calls and
Qwen 3's reasoning.
"""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import aiohttp
import openai
import pytest

from pando_worker.server.text.tokenizer import Tokenizer
from tests.worker.server.process.worker_process import MODEL, MODEL_NAME, WorkerProcess
from tests.worker.server.stand_in import Trick

TOKENIZER = Tokenizer(MODEL)
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
    for name in ("weather", "time")
]
CALLS = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "time", "arguments": {"city": "Bonn"}}\n</tool_call>'
)
ANSWER = f"<think>\nBoth.\n</think>\n\nOne moment. {CALLS}"


def asking(answer: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": answer}],
        "seed": Trick.ANSWERS,
        **fields,
    }


async def test_calls_and_reasoning_come_apart_from_the_content(
    rich_client: openai.AsyncOpenAI,
) -> None:
    done = await rich_client.chat.completions.create(**asking(ANSWER, tools=TOOLS, n=2))
    for choice in done.choices:
        assert choice.finish_reason == "tool_calls"
        message = choice.message.model_dump()
        assert (message["reasoning_content"], message["content"]) == ("Both.", "One moment.")
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]]
        assert [(name, json.loads(text)) for name, text in calls] == [
            ("weather", {"city": "Ulm"}),
            ("time", {"city": "Bonn"}),
        ]
        assert all(call["type"] == "function" and call["id"] for call in message["tool_calls"])


async def test_a_stream_puts_together_to_the_same_message(rich_client: openai.AsyncOpenAI) -> None:
    options = asking(ANSWER, tools=TOOLS, logprobs=True)
    whole = (await rich_client.chat.completions.create(**options)).choices[0]
    reasoning = content = ""
    calls: dict[int, dict[str, Any]] = {}
    scores: list[Any] = []
    finish = None
    async for chunk in await rich_client.chat.completions.create(stream=True, **options):
        [choice] = chunk.choices
        finish = choice.finish_reason or finish
        scores += (choice.logprobs and choice.logprobs.content) or []
        reasoning += getattr(choice.delta, "reasoning_content", "")
        content += choice.delta.content or ""
        for call in choice.delta.tool_calls or ():
            assert call.function is not None
            if call.id:
                assert call.type == "function"
                calls[call.index] = {"name": call.function.name, "arguments": ""}
            calls[call.index]["arguments"] += call.function.arguments or ""

    assert finish == whole.finish_reason == "tool_calls"
    assert (reasoning, content) == (whole.message.model_dump()["reasoning_content"], "One moment.")
    assert list(calls.values()) == [
        {"name": call.function.name, "arguments": call.function.arguments}
        for call in whole.message.tool_calls or ()
        if call.type == "function"
    ]
    assert whole.logprobs is not None and scores == whole.logprobs.content


async def test_the_clients_own_helper_understands_the_stream(
    rich_client: openai.AsyncOpenAI,
) -> None:
    options = asking(CALLS, tools=TOOLS)
    async with rich_client.chat.completions.stream(**options) as stream:
        final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls or []
    assert [call.function.name for call in calls] == ["weather", "time"]
    assert final.choices[0].message.content in (None, "")


async def test_calls_alone_have_null_content(rich_client: openai.AsyncOpenAI) -> None:
    done = await rich_client.chat.completions.create(**asking(CALLS, tools=TOOLS))
    assert done.choices[0].message.content is None


async def test_a_named_tools_call_ends_with_stop_as_openai_has_it(
    rich_client: openai.AsyncOpenAI,
) -> None:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    one = CALLS.partition('\n<tool_call>\n{"name": "time"')[0]
    done = await rich_client.chat.completions.create(**asking(one, tools=TOOLS, tool_choice=choice))
    assert done.choices[0].finish_reason == "stop"
    assert len(done.choices[0].message.tool_calls or ()) == 1


async def test_an_answer_by_a_schema_is_one_whatever_text_stands_in_it(
    rich_client: openai.AsyncOpenAI,
) -> None:
    schema: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": PARAMETERS}}
    answer = json.dumps({"city": CALLS})
    for text, calls in ((answer, 0), (CALLS, 2)):
        options = asking(text, tools=TOOLS, response_format=schema)
        message = (await rich_client.chat.completions.create(**options)).choices[0].message
        assert message.content == (None if calls else answer)
        assert len(message.tool_calls or ()) == calls


async def test_without_tools_text_is_text(rich_client: openai.AsyncOpenAI) -> None:
    for options in (asking(CALLS), asking(CALLS, tools=TOOLS, tool_choice="none")):
        done = await rich_client.chat.completions.create(**options)
        assert done.choices[0].message.content == CALLS
        assert done.choices[0].finish_reason == "stop"


async def prompt_of(http: aiohttp.ClientSession, **fields: Any) -> tuple[str, dict[str, Any]]:
    """The prompt as the scheduler gets it, and the rest of the command."""
    body = {"model": MODEL_NAME, "seed": Trick.SHOWN, "tools": TOOLS, **fields}
    async with http.post("/v1/chat/completions", json=body) as answer:
        assert answer.status == 400
        command = json.loads((await answer.json())["error"]["message"])
    return TOKENIZER.decode(command["input_ids"]), command


async def test_tools_and_earlier_calls_go_through_the_chat_template(
    rich_http: aiohttp.ClientSession,
) -> None:
    call = {"name": "weather", "arguments": '{"city": "Ulm"}'}
    messages = [
        {"role": "user", "content": "And in Ulm?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "It rains."},
    ]
    prompt, _ = await prompt_of(rich_http, messages=messages)
    assert '"name": "weather"' in prompt and '"properties"' in prompt
    assert '"arguments": {"city": "Ulm"}' in prompt, "as an object, which templates write as JSON"
    assert "It rains." in prompt
    assert "None" not in prompt

    async with rich_http.post("/tokenize", json={"messages": messages, "tools": TOOLS}) as answer:
        assert TOKENIZER.decode((await answer.json())["tokens"]) == prompt


async def test_tools_that_must_be_called_constrain_the_output(
    rich_http: aiohttp.ClientSession,
) -> None:
    messages = [{"role": "user", "content": "hi"}]
    _, free = await prompt_of(rich_http, messages=messages)
    _, bound = await prompt_of(rich_http, messages=messages, tool_choice="required")
    assert free["grammar"] is None
    assert "weather" in bound["grammar"]


@pytest.mark.e2e
async def test_a_model_whose_form_is_unknown_gets_tools_in_its_system_message() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    with WorkerProcess.start(context_length=2048) as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            prompt, command = await prompt_of(http, messages=messages)
            assert prompt.count('"name": "weather"') == 1 and "<|role|>tools" not in prompt
            assert "weather" in command["grammar"], "a call of its own will fits its schema, too"

            prompt, command = await prompt_of(http, messages=messages, tool_choice="none")
            assert "weather" not in prompt and command["grammar"] is None

            body = {"messages": messages, "tools": [{}]}
            async with http.post("/tokenize", json=body) as answer:
                assert answer.status == 400


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A worker whose model's chat template shows no tools, but the effort."""
    folder = tmp_path_factory.mktemp("plain") / "model"
    shutil.copytree(MODEL, folder)
    template = folder / "chat_template.jinja"
    effort = (
        "{{- reasoning_effort }}{% if not (enable_thinking | default(true)) %}, mute{% endif %}"
    )
    template.write_text(template.read_text().replace("tools", "nothing") + effort)
    with WorkerProcess.start(
        model=str(folder),
        served_model_name=MODEL_NAME,
        tool_call_parser="hermes",
        context_length=2048,
    ) as worker:
        yield worker


@pytest.mark.e2e
async def test_a_model_that_is_shown_no_tools_has_pandos_own_calls_whatever_the_settings_name(
    plain: WorkerProcess,
) -> None:
    assert "calls have the form 'pando'" in plain.log
    async with aiohttp.ClientSession(plain.url) as http:
        prompt, command = await prompt_of(http, messages=[{"role": "user", "content": "hi"}])
    assert prompt.count('"name": "weather"') == 1
    assert "weather" in command["grammar"]


@pytest.mark.e2e
@pytest.mark.parametrize(("effort", "shown"), [("high", "high"), ("none", "none, mute")])
async def test_the_effort_of_a_chat_reaches_its_template(
    plain: WorkerProcess, effort: str, shown: str
) -> None:
    async with aiohttp.ClientSession(plain.url) as http:
        messages = [{"role": "user", "content": "hi"}]
        prompt, _ = await prompt_of(http, messages=messages, reasoning_effort=effort)
        body = {"messages": messages, "tools": TOOLS, "reasoning_effort": effort}
        async with http.post("/tokenize", json=body) as answer:
            tokens = (await answer.json())["tokens"]
    assert prompt.endswith(f"<|content|>{shown}")
    assert TOKENIZER.decode(tokens) == prompt


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": "{"}}],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [5]}]}, "messages[0].tool_calls"),
        ({"functions": [{"name": "f"}]}, "functions"),
    ],
)
async def test_bad_tools_are_named(
    rich_http: aiohttp.ClientSession, fields: dict[str, Any], param: str
) -> None:
    async with rich_http.post("/v1/chat/completions", json=asking("x") | fields) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == param
