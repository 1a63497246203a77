"""Reasoning is separated from the answer, whether the prompt or the model opened it."""

import pytest

from pando_worker.parsers.reasoning import Start
from pando_worker.parsers.registry import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    reasoning_format,
    tool_format,
)
from tests.worker.parsers.parsing import new_parser, parse


@pytest.mark.parametrize(
    ("start", "text", "reasoning", "content"),
    [
        (Start.MAY_OPEN, "<think>\nhm\n</think>\n\nyes", "hm", "yes"),
        (Start.MAY_OPEN, "yes <think>no</think>", "", "yes <think>no</think>"),
        (Start.MAY_OPEN, " <thin", "", " <thin"),
        (Start.MAY_OPEN, "<think>\nhm", "hm", ""),
        (Start.INSIDE, "hm\n</think>\n\nyes\n", "hm", "yes\n"),
        (Start.INSIDE, "\n<think>\nhm</think>yes", "hm", "yes"),
        (Start.INSIDE, "a </thin b </thi", "a </thin b </thi", ""),
        (Start.INSIDE, "</think>yes", "", "yes"),
        (Start.ANSWER, "<think>yes", "", "<think>yes"),
    ],
)
def test_reasoning_ends_at_its_closing_tag(
    start: Start, text: str, reasoning: str, content: str
) -> None:
    for chunks in ([text], list(text)):
        parsed = parse(new_parser(None, "qwen3", start), chunks)
        assert (parsed.reasoning, parsed.content) == (reasoning, content)


@pytest.mark.parametrize(
    ("name", "prompt", "start"),
    [
        ("qwen3", "<|im_start|>assistant\n", Start.MAY_OPEN),
        ("qwen3", "<|im_start|>assistant\n<think>\n", Start.INSIDE),
        ("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", Start.ANSWER),
        ("deepseek_r1", "<\uff5cAssistant\uff5c>", Start.INSIDE),
        ("deepseek_r1", "<\uff5cAssistant\uff5c><think>\n", Start.INSIDE),
        ("deepseek_r1", "<\uff5cAssistant\uff5c></think>", Start.ANSWER),
    ],
)
def test_the_prompts_end_says_where_the_output_begins(name: str, prompt: str, start: Start) -> None:
    assert REASONING_FORMATS[name].start(prompt) is start


def test_a_call_in_the_reasoning_is_reasoning() -> None:
    call = '<tool_call>{"name": "time", "arguments": {}}</tool_call>'
    parsed = parse(new_parser("hermes", "qwen3"), list(f"<think>{call}</think>{call}"))
    assert parsed.reasoning == call
    assert len(parsed.calls) == 1


def test_formats_are_found_by_what_the_chat_template_shows() -> None:
    assert tool_format("auto", "tools ... return <tool_call> ...") is TOOL_FORMATS["hermes"]
    assert tool_format("auto", "tools ... [TOOL_CALLS] ...") is TOOL_FORMATS["mistral"]
    assert tool_format("auto", "tools ... <|python_tag|> ...") is TOOL_FORMATS["llama3"]
    llama_3_2 = """tools <|start_header_id|> {"name": function name, "parameters": dictionary}"""
    assert tool_format("auto", llama_3_2) is TOOL_FORMATS["llama3"]
    hermes_3_of_llama = llama_3_2 + "<tool_call>"
    assert tool_format("auto", hermes_3_of_llama) is TOOL_FORMATS["hermes"]
    coder = "tools <tool_call>\n<function=' + name + '>\n<parameter=' + key + '>"
    assert tool_format("auto", coder) is TOOL_FORMATS["qwen3_coder"]
    own = TOOL_FORMATS["pando"]
    assert tool_format("auto", "tools <tool_call> [TOOL_CALLS]") is own  # two are as good as none
    assert tool_format("hermes", "tools") is TOOL_FORMATS["hermes"]
    assert tool_format("hermes", "<tool_call>") is own  # the model would not learn of the tools
    assert tool_format("hermes", None) is own
    assert reasoning_format("auto", "split('</think>')") is REASONING_FORMATS["qwen3"]
    deepseek = "<\uff5cAssistant\uff5c> </think>"
    assert reasoning_format("auto", deepseek) is REASONING_FORMATS["deepseek_r1"]
    assert reasoning_format("auto", None) is None
    assert reasoning_format("none", "</think>") is None
