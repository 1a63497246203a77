"""First lines that change with every call are left out, and nothing else is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.canonical import chat_bytes, messages_bytes, responses_bytes, tools_bytes
from pando_fleet.canonical.volatile import (
    FORMS,
    prefix_without_volatile_line,
    without_volatile_line,
)
from pando_fleet.images.in_prefix import PrefixImage

BILLING = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={};"
LINES = {"claude-code": BILLING}
"""As they were seen, by form; `{}` changes with every call."""

RULES = "You are an agent.\n\nUse tools."
TURNS: list[dict[str, Any]] = [{"role": "user", "content": "What is a tree?"}]
TOOLS = tools_bytes([{"name": "look", "input_schema": {"type": "object"}}])


def test_every_form_has_a_line_here() -> None:
    assert LINES.keys() == {form.name for form in FORMS}


@pytest.mark.parametrize("form", LINES)
@pytest.mark.parametrize("end", ["\n", "\n\n"])
def test_the_line_is_left_out_of_a_text(form: str, end: str) -> None:
    text = LINES[form].format("0aaa9") + end + RULES
    assert without_volatile_line(text) == (RULES, form)
    assert without_volatile_line(LINES[form].format("36ee5")) == ("", form)


@pytest.mark.parametrize("text", ["", RULES, f"{RULES}\n{BILLING}", " " + BILLING, "x-anthropic"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert without_volatile_line(text) == (text, None)


def spoken(line: str) -> dict[str, bytes]:
    """Canonical bytes of the same conversation in every API and form of the system prompt."""
    blocks = [{"type": "text", "text": line}, {"type": "text", "text": RULES}]
    text = f"{line}\n{RULES}"
    system = {"role": "system", "content": text}
    return {
        "messages, blocks": messages_bytes(TURNS, blocks, TOOLS),
        "messages, text": messages_bytes(TURNS, text, TOOLS),
        "messages without tools": messages_bytes(TURNS, blocks),
        "chat": chat_bytes([system, *TURNS], TOOLS),
        "chat, parts": chat_bytes([{"role": "developer", "content": blocks}, *TURNS], TOOLS),
        "responses": responses_bytes(TURNS, text, TOOLS),
    }


@pytest.mark.parametrize("form", LINES)
def test_prompts_that_differ_in_the_line_are_equal_without_it(form: str) -> None:
    first, second = (spoken(LINES[form].format(stamp)) for stamp in ("36ee5", "0aaa9"))
    for name, data in first.items():
        one, two = (prefix_without_volatile_line(each, ()) for each in (data, second[name]))
        assert one is not None
        assert one == two, name
        assert one[2] == form
        assert BILLING[:20].encode() not in one[0]
        assert one[0] in (
            messages_bytes(TURNS, RULES, TOOLS),
            messages_bytes(TURNS, RULES),
            chat_bytes([{"role": "developer", "content": RULES}, *TURNS], TOOLS),
        ), name


def test_a_system_prompt_of_nothing_else_is_empty() -> None:
    found = prefix_without_volatile_line(messages_bytes(TURNS, BILLING), ())
    assert found is not None
    assert found[0] == chat_bytes([{"role": "system", "content": ""}, *TURNS])


@given(st.text(), st.text())
def test_prompts_without_such_a_line_stay_as_they_are(system: str, question: str) -> None:
    for data in (
        messages_bytes([{"role": "user", "content": question}], system),
        chat_bytes([{"role": "user", "content": BILLING}]),
        chat_bytes([{"role": "system", "content": system}, {"role": "system", "content": BILLING}]),
        b"",
    ):
        assert prefix_without_volatile_line(data, ()) is None


def test_images_are_where_they_were() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "aGVsbG8=", "media_type": "x"}}
    turns = [{"role": "user", "content": [{"type": "text", "text": "Look"}, picture]}]
    images: list[PrefixImage] = []
    plain: list[PrefixImage] = []
    data = messages_bytes(turns, f"{BILLING}\n{RULES}", b"", images)
    bare = messages_bytes(turns, RULES, b"", plain)
    found = prefix_without_volatile_line(data, images)
    assert found is not None
    assert found[0] == bare
    assert [one.end for one in found[1]] == [one.end for one in plain]
