"""Requests cut to a prefix of their prompt: they contain it and hardly more."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.endpoints import ENDPOINTS
from pando_router.warming.prefixes import SentRequest
from pando_router.warming.replay import prefill

CHAT = "/v1/chat/completions"
texts = st.text(st.sampled_from("ab ñ漢🙂"), min_size=1, max_size=900)
message = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts})
chats = st.tuples(texts, st.lists(message, min_size=1, max_size=6)).map(
    lambda chat: [{"role": "system", "content": chat[0]}, *chat[1]]
)


def source(path: str, **body: Any) -> SentRequest:
    return SentRequest(path, json.dumps({"model": "m", **body}).encode(), "m")


def cut(source: SentRequest, chunks: int) -> Any:
    return json.loads(prefill(source, chunks))


def bytes_of(source: SentRequest) -> bytes:
    return ENDPOINTS[source.path].parse(source.body).prefix


@given(chats, st.data())
def test_chat_is_cut_to_its_beginning_and_hardly_more(chat: Any, data: st.DataObject) -> None:
    whole = source(CHAT, messages=chat)
    chunks = data.draw(st.integers(0, len(bytes_of(whole)) // CHUNK_BYTES))
    sent = ENDPOINTS[CHAT].parse(prefill(whole, chunks)).prefix
    wanted = bytes_of(whole)[: chunks * CHUNK_BYTES]
    assert sent.startswith(wanted)
    assert len(sent) < len(wanted) + 40


@given(st.text(st.sampled_from("a漢🙂"), min_size=300, max_size=2_000), st.data())
def test_text_is_cut_to_its_beginning(text: str, data: st.DataObject) -> None:
    for path, field in (("/v1/completions", "prompt"), ("/generate", "text")):
        whole = source(path, **{field: text})
        chunks = data.draw(st.integers(1, len(text.encode()) // CHUNK_BYTES))
        shorter = cut(whole, chunks)[field]
        assert text.startswith(shorter)
        assert 0 <= len(shorter.encode()) - chunks * CHUNK_BYTES < 4


@pytest.mark.parametrize(
    ("path", "field"), [("/v1/completions", "prompt"), ("/generate", "input_ids")]
)
def test_token_ids_are_cut_to_their_beginning(path: str, field: str) -> None:
    ids = list(range(500))
    whole = source(path, **{field: ids})
    shorter = cut(whole, 3)[field]
    assert ids[: len(shorter)] == shorter
    assert len(shorter) == pytest.approx(3 * CHUNK_BYTES / 4, abs=2)


def test_only_the_first_of_several_prompts_is_sent() -> None:
    whole = source("/v1/completions", prompt=["a" * 600, "b" * 600])
    assert cut(whole, 2)["prompt"] == "a" * 512


def test_answer_is_one_token_and_what_shapes_the_prompt_stays() -> None:
    body = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template_kwargs": {"enable_thinking": False},
        "cache_salt": "secret",
        "messages": [{"role": "user", "content": "x" * 600}],
    }
    answer = {"stream": True, "n": 3, "max_completion_tokens": 500, "stop": ["x"], "logprobs": True}
    sent = cut(source(CHAT, **body, **answer), 2)
    assert sent["max_tokens"] == 1
    assert not answer.keys() & sent.keys()
    assert {name: sent[name] for name in body if name != "messages"} == {
        name: value for name, value in body.items() if name != "messages"
    }


def test_system_message_comes_with_the_first_letter_of_a_user() -> None:
    chat = [
        {"role": "system", "content": "s" * 5_000},
        {"role": "user", "content": "What is this?"},
        {"role": "assistant", "content": "That."},
    ]
    sent = cut(source(CHAT, messages=chat), 4)["messages"]
    assert [message["role"] for message in sent] == ["system", "user"]
    assert len(sent[0]["content"]) <= 1_024
    assert sent[1]["content"] == "W"


def test_message_of_parts_is_sent_whole() -> None:
    parts = [{"type": "text", "text": "a" * 600}, {"type": "text", "text": "b" * 600}]
    chat = [{"role": "user", "content": parts}, {"role": "assistant", "content": "ok"}]
    assert cut(source(CHAT, messages=chat), 2)["messages"] == chat[:1]


@pytest.mark.parametrize(
    ("path", "body", "limit"),
    [
        ("/generate", {"text": "a" * 600}, ("sampling_params", "max_new_tokens")),
        ("/v1/responses", {"input": "a" * 600}, ("max_output_tokens",)),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a" * 600}]}, ("max_tokens",)),
    ],
)
def test_every_api_is_asked_for_one_token(path: str, body: Any, limit: tuple[str, ...]) -> None:
    whole = source(path, **body)
    sent = cut(whole, 2)
    for name in limit:
        sent = sent[name]
    assert sent == 1
    assert len(ENDPOINTS[path].parse(prefill(whole, 2)).prefix) < 550


def test_message_that_cannot_be_cut_is_sent_whole() -> None:
    # Fields after the content would take the place of its missing end when it is cut.
    chat = [{"role": "user", "content": "a" * 600, "name": "b" * 100}]
    assert cut(source(CHAT, messages=chat), 2)["messages"] == chat
