"""The usage is found at the end of every kind of answer, and never in a model's text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_router.exchange.tail import TAIL_BYTES, Tail, Usage, find_usage
from pando_router.tenants.rate_headers import duration

USAGE = {"prompt_tokens": 17, "completion_tokens": 5, "total_tokens": 22}
TRICK = '"usage": {"prompt_tokens": 1, "completion_tokens": 1}'


def events(*bodies: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(b).encode() + b"\n\n" for b in bodies) + (
        b"data: [DONE]\n\n"
    )


def in_pieces(answer: bytes, size: int) -> Tail:
    tail = Tail(answer[:size])
    for start in range(size, len(answer), size):
        tail.add(answer[start : start + size])
    return tail


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        (json.dumps({"id": "c", "usage": USAGE}).encode(), Usage(17, 5)),
        (json.dumps({"usage": USAGE, "system_fingerprint": None}).encode(), Usage(17, 5)),
        (json.dumps({"usage": USAGE}, indent=2).encode(), Usage(17, 5)),
        (events({"usage": None}, {"choices": [], "usage": USAGE}), Usage(17, 5)),
        (events({"usage": USAGE}, {"choices": [], "usage": None}), Usage(17, 5)),
        (events({"response": {"usage": {"input_tokens": 3, "output_tokens": 2}}}), Usage(3, 2)),
        (events({"type": "message_delta", "usage": {"output_tokens": 9}}), Usage(None, 9)),
        (
            json.dumps({"text": "", "meta_info": {"id": "", **USAGE, "cached_tokens": 0}}).encode(),
            Usage(17, 5, 0),
        ),
        (
            events({"usage": USAGE | {"prompt_tokens_details": {"cached_tokens": 16}}}),
            Usage(17, 5, 16),
        ),
        (events({"usage": USAGE | {"prompt_tokens_details": None}}), Usage(17, 5)),
        (json.dumps({"meta_info": {"matched": "}{{", **USAGE}}).encode(), Usage(17, 5)),
        (json.dumps({"usage": {"input_tokens": -1, "output_tokens": "5"}}).encode(), None),
        (json.dumps({"data": [], "usage": {"prompt_tokens": 8}}).encode(), Usage(8, None)),
        (json.dumps({"choices": [{"text": TRICK}]}).encode(), None),
        (json.dumps({"usage": USAGE, "text": TRICK}).encode(), Usage(17, 5)),
        (json.dumps({"usage": USAGE}).encode()[:-9], None),
        (json.dumps({"usage": {}, "meta_info": USAGE}).encode(), Usage(17, 5)),
        (json.dumps({"response": {"usage": USAGE}}).encode(), Usage(17, 5)),
        (b'"usage": "usage": {}', None),
        (b"", None),
        (b"\x1f\x8b\x00 compressed", None),
    ],
)
def test_the_usage_of_an_answer(answer: bytes, usage: Usage | None) -> None:
    assert find_usage(answer) == usage
    assert Tail(answer).usage() == usage


@given(st.text(), st.integers(1, 500))
def test_it_is_found_behind_any_text_however_the_answer_is_cut(text: str, size: int) -> None:
    answer = json.dumps({"text": text + TRICK, "usage": USAGE}, ensure_ascii=False).encode()
    answer = b" " * 3 * TAIL_BYTES + answer
    assert in_pieces(answer, size).usage() == Usage(17, 5)


def test_events_are_counted_where_no_usage_comes() -> None:
    tail = Tail(b'data: {"choices": []}\n\n')
    for _ in range(6):
        tail.add(b'data: {"choices": []}\n\n')
    tail.add(b"data: [DONE]\n\n")
    assert (tail.usage(), tail.events) == (None, 7)


@given(st.integers(1, 2_000), st.integers(1, 3 * TAIL_BYTES), st.sampled_from([0, 1, 5_000]))
def test_events_are_counted_once_however_the_answer_is_cut(
    count: int, size: int, asked_at: int
) -> None:
    stream = b'data: {"n": 1}\n\n' * count
    tail = in_pieces(stream[:asked_at], size)
    assert tail.events <= count  # asking changes nothing
    for start in range(asked_at, len(stream), size):
        tail.add(stream[start : start + size])
    assert tail.events == count


def test_what_is_kept_of_an_answer_is_bounded() -> None:
    tail = Tail(b"x" * 100_000)
    for _ in range(1_000):
        tail.add(b"x" * 100)
        assert len(tail._kept) + sum(map(len, tail._new or ())) <= 2 * TAIL_BYTES


def test_durations_are_written_as_openai_does() -> None:
    written = [duration(ms) for ms in (0, 17, 1000, 7_660, 60_000, 90_500, 3_600_000)]
    assert written == ["0ms", "17ms", "1s", "7.66s", "1m0s", "1m30.5s", "1h0m0s"]
