"""Canonical bytes and chunk keys: what two prompts share, they share as keys, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from pando_fleet import PrefixError, chat_bytes, chunk_keys, completion_bytes, seed
from pando_fleet.prefix import MAX_CHUNKS

# Few letters, so that contents run into each other; the rest are what looks like a border.
_TEXT = st.text(st.sampled_from('ab\xff\xfe\xfd\xfc\xfb\x00"{}:,\ud800'), max_size=4)
_ROLE = st.sampled_from(["user", "a", "ab", ""])
_PART = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, _TEXT),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, _TEXT),
)
_MESSAGE = st.fixed_dictionaries(
    {"role": _ROLE, "content": st.one_of(st.none(), _TEXT, st.lists(_PART, max_size=3))},
    optional={"name": st.none() | _TEXT, "tool_call_id": _TEXT},
)
_MESSAGES = st.lists(_MESSAGE, max_size=4)
_TOOLS = st.none() | st.lists(st.fixed_dictionaries({"name": _TEXT}), max_size=2)


def _meaning(messages: list[dict[str, Any]], tools: list[Any] | None) -> object:
    """What a prompt says, without the spellings that mean the same."""
    said = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        rest = {k: v for k, v in message.items() if k not in ("role", "content") and v is not None}
        said.append((message["role"], content or [], rest))
    return tools or [], said


@given(_MESSAGES, _TOOLS, _MESSAGES, _TOOLS)
def test_bytes_are_equal_exactly_where_the_prompts_say_the_same(
    first: list[dict[str, Any]],
    first_tools: list[Any] | None,
    second: list[dict[str, Any]],
    second_tools: list[Any] | None,
) -> None:
    same_bytes = chat_bytes(first, first_tools) == chat_bytes(second, second_tools)
    assert same_bytes == (_meaning(first, first_tools) == _meaning(second, second_tools))


@given(_MESSAGES, _TOOLS, _MESSAGES)
def test_a_longer_conversation_extends_the_bytes_of_the_shorter(
    messages: list[dict[str, Any]], tools: list[Any] | None, more: list[dict[str, Any]]
) -> None:
    assert chat_bytes(messages + more, tools).startswith(chat_bytes(messages, tools))


@given(st.text(max_size=8), st.text(max_size=8))
def test_a_message_that_goes_on_extends_the_bytes(text: str, more: str) -> None:
    short, long = ([{"role": "user", "content": t}] for t in (text, text + more))
    assert chat_bytes(long).startswith(chat_bytes(short))


def test_a_string_and_one_text_part_are_the_same_prompt() -> None:
    parts = [{"type": "text", "text": "hello"}]
    as_parts = chat_bytes([{"role": "user", "content": parts}])
    assert as_parts == chat_bytes([{"role": "user", "content": "hello"}])


def test_an_image_enters_as_a_digest_whatever_its_size() -> None:
    def image(data: str) -> list[dict[str, Any]]:
        url = {"url": f"data:image/png;base64,{data}"}
        return [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]

    assert len(chat_bytes(image("A" * 100_000))) < 100
    assert chat_bytes(image("A" * 1000)) != chat_bytes(image("A" * 999 + "B"))


@given(st.text(max_size=8), st.lists(st.integers(0, 2**32 - 1), max_size=8))
def test_text_and_token_ids_never_share_bytes(text: str, ids: list[int]) -> None:
    assert completion_bytes(text) != completion_bytes(ids)
    assert len(completion_bytes(ids)) == 1 + 4 * len(ids)


@given(st.binary(max_size=64), st.integers(0, 2**64 - 1), st.integers(1, 9))
def test_keys_are_a_chain_of_hashes_over_the_full_chunks(
    data: bytes, start: int, chunk_bytes: int
) -> None:
    keys = chunk_keys(data, start, chunk_bytes)
    assert len(keys) == 8 * (len(data) // chunk_bytes)
    previous = start.to_bytes(8, "big")
    for i in range(len(data) // chunk_bytes):
        previous = xxh3_64_digest(previous + data[i * chunk_bytes : (i + 1) * chunk_bytes])
        assert keys[8 * i : 8 * i + 8] == previous


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
def test_two_prompts_share_keys_exactly_as_far_as_they_share_chunks(
    common: bytes, one: bytes, other: bytes
) -> None:
    first, second = common + one, common + other
    shared = 0
    while (
        shared < min(len(first), len(second)) // 4
        and first[: 4 * shared + 4] == second[: 4 * shared + 4]
    ):
        shared += 1
    a, b = chunk_keys(first, 7, 4), chunk_keys(second, 7, 4)
    assert a[: 8 * shared] == b[: 8 * shared]
    assert not set(_split(a[8 * shared :])) & set(_split(b[8 * shared :]))


def test_a_huge_prompt_has_a_bounded_number_of_keys() -> None:
    assert len(chunk_keys(b"x" * (MAX_CHUNKS + 5), 0, 1)) == 8 * MAX_CHUNKS


def test_model_adapter_and_salt_each_make_a_name_space() -> None:
    spaces = [seed("m"), seed("m", "a"), seed("m", "", "a"), seed("m", "a", "a"), seed("ma")]
    assert len(set(spaces)) == len(spaces)
    assert seed("m", "a") == seed("m", "a")


@pytest.mark.parametrize(
    ("messages", "tools", "message"),
    [
        ("hi", None, "messages must be a list, not a string"),
        ([1], None, r"messages\[0\] must be an object, not a number"),
        ([{"content": "x"}], None, r"messages\[0\].role must be a string, not null"),
        ([{"role": "user", "content": 5}], None, r"messages\[0\].content must be .*, not a number"),
        ([{"role": "u", "content": ["x"]}], None, r"content\[0\] must be an object, not a string"),
        ([{"role": "u", "content": [{"type": "text"}]}], None, r"\[0\].text must be a string"),
        ([], {"name": "f"}, "tools must be a list, not an object"),
    ],
)
def test_a_wrong_shape_is_named_with_its_place(messages: Any, tools: Any, message: str) -> None:
    with pytest.raises(PrefixError, match=message):
        chat_bytes(messages, tools)


@pytest.mark.parametrize("prompt", [None, {"a": 1}, [-1], [2**32], [1.5], ["text"], [[1]]])
def test_a_prompt_that_is_neither_text_nor_token_ids_is_refused(prompt: Any) -> None:
    with pytest.raises(PrefixError, match="prompt must"):
        completion_bytes(prompt)


def _split(keys: bytes) -> list[bytes]:
    return [keys[i : i + 8] for i in range(0, len(keys), 8)]
