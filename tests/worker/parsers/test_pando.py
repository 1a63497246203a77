"""Conversations with tools, for chat templates that show none."""

import json
from typing import Any

import pytest

from pando_worker.parsers.families.pando import with_tools
from pando_worker.parsers.registry import TOOL_FORMATS, tool_format
from tests.worker.parsers.parsing import new_parser, parse

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CALL = {"function": {"name": "weather", "arguments": {"city": "Köln"}}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "One moment.", "tool_calls": [CALL, CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "Rain"},
    {"role": "tool", "tool_call_id": "b", "content": "Snow"},
    {"role": "user", "content": "And now?"},
]
CHATML = "{% if messages[0]['role'] != 'system' %}..{% endif %}"
MISTRAL_V1 = "raise_exception('Conversation roles must alternate user/assistant/...')"
GEMMA_2 = "if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"


EXAMPLE = ["user", "assistant"]


def test_calls_and_results_become_turns_that_alternate() -> None:
    shown = with_tools(CONVERSATION, TOOLS, CHATML)
    turns = ["user", "assistant", "user"]
    assert [message["role"] for message in shown] == ["system", *EXAMPLE, *turns]
    assert shown[0]["content"].startswith("Be brief.\n\n") and '"weather"' in shown[0]["content"]
    assert shown[-1]["content"] == (
        "<tool_response>\nRain\n</tool_response>\n\n"
        "<tool_response>\nSnow\n</tool_response>\n\nAnd now?"
    )
    assert not any("tool_calls" in message for message in shown)
    assert CONVERSATION[2]["tool_calls"], "the request itself is left as it was"


def test_an_earlier_call_is_shown_in_the_form_in_which_the_model_writes_it() -> None:
    [*_, answer, _] = with_tools(CONVERSATION, TOOLS, CHATML)
    parsed = parse(new_parser("pando"), [answer["content"]])
    assert parsed.content == "One moment."
    assert [json.loads(call.arguments) for call in parsed.calls] == [{"city": "Köln"}] * 2


@pytest.mark.parametrize("template", [MISTRAL_V1, GEMMA_2])
def test_where_the_template_has_no_system_the_first_question_has_the_tools(template: str) -> None:
    first, *rest = with_tools(CONVERSATION[1:], TOOLS, template)
    assert first["role"] == "user" and '"weather"' in first["content"]
    assert [message["role"] for message in rest] == ["assistant", "user", "assistant", "user"]


def test_without_tools_only_earlier_calls_change() -> None:
    assert with_tools(CONVERSATION[:2], None, CHATML) == CONVERSATION[:2]
    shown = with_tools(CONVERSATION, None, CHATML)
    assert shown[0]["content"] == "Be brief."
    assert "<tool_call>" in shown[2]["content"]


def test_contents_in_parts_stay_so() -> None:
    image = {"type": "image"}
    question = [image, {"type": "text", "text": "What is it?"}]
    result = [{"type": "text", "text": "A cat"}]
    [system, _, _, user, answer, results] = with_tools(
        [
            {"role": "user", "content": question},
            {"role": "assistant", "content": [], "tool_calls": [CALL]},
            {"role": "tool", "content": result},
        ],
        TOOLS,
        CHATML,
    )
    assert '"weather"' in system["content"][0]["text"]
    assert user["content"] == question
    assert "<tool_call>" in answer["content"][0]["text"]
    assert [part["text"] for part in results["content"]] == [
        "<tool_response>\n",
        "A cat",
        "\n</tool_response>",
    ]


@pytest.mark.parametrize(
    "template",
    [
        None,
        "<|user|>",
        "{{ tools | tojson }} <|made up|>",  # shows tools, but the form of calls is unknown
    ],
)
def test_it_is_the_format_of_models_that_have_none(template: str | None) -> None:
    assert tool_format("auto", template) is TOOL_FORMATS["pando"]
