"""Streams of messages and responses that break at any byte: the client gets one whole stream."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from pando_router.migration.errors import DivergedError, RefusedError
from pando_router.migration.stream import Stream
from tests.examples import examples
from tests.router.migration.test_migration import DEFAULTS, planned, rest, stream_of
from tests.router.migration.typed_engine import MESSAGES, PIECES, RESPONSES, TypedEngine

Event = dict[str, Any]
REQUESTS: dict[str, Event] = {
    MESSAGES: {
        "model": "m",
        "messages": [{"role": "user", "content": "P"}],
        "max_tokens": 99,
        "temperature": 0,
        "stream": True,
    },
    RESPONSES: {"model": "m", "input": "P", "temperature": 0, "stream": True},
}
BOTH = pytest.mark.parametrize("path", REQUESTS)


def begin(engine: TypedEngine) -> tuple[Stream, bytes]:
    """A stream at its first replica, and the whole answer of this replica."""
    whole = engine.answer(REQUESTS[engine.path])
    return stream_of(engine.path, REQUESTS[engine.path], engine.count), whole


def broken(engine: TypedEngine, *cuts: int, step: int = 97) -> tuple[bytes, bytes]:
    """What the client gets if each replica in turn breaks after this many bytes, and the
    whole answer of the first."""
    stream, first = begin(engine)
    whole, out = first, b""
    for cut in (*cuts, None):
        said = whole[:cut]
        for start in range(0, len(said), step):
            out += stream.pass_on(said[start : start + step])
        if cut is None:
            break
        if not stream.lost():
            return out + stream.ending, first
        whole = engine.answer(json.loads(stream.ask()))
        stream.goes_on(engine.count)
    return out + stream.end(), first


@pytest.mark.parametrize(
    "asked", [{"include": ["message.output_text.logprobs"]}, {"top_logprobs": 2}]
)
def test_responses_with_log_probabilities_do_not_go_on(asked: Event) -> None:
    body = json.dumps(REQUESTS[RESPONSES] | asked).encode()
    made = planned(RESPONSES, body, DEFAULTS)
    assert made is not None and made.refusal == "its texts have log-probabilities"


def events_in(out: bytes) -> list[Event]:
    """The stream's events, with adjacent pieces of one text joined, and without what may differ:
    where texts are cut, token ids, the numbers of events (which are checked here), the time of the
    end, and which replica gave an id and the time of the beginning: each becomes its number in the
    order of appearance."""
    ids: dict[bytes, dict[bytes, int]] = {}

    def numbered(found: re.Match[bytes]) -> bytes:
        known = ids.setdefault(found[1], {})
        return b"%s%d" % (found[1], known.setdefault(found[2], len(known)))

    for pattern in (rb'("created_at":)(\d+)', rb"\b((?:resp|rs|msg|fc)_)(\d+)", rb"(call_)(\d_\d)"):
        out = re.sub(pattern, numbered, out)
    events: list[Event] = []
    for number, sse in enumerate(SSEDecoder().iter_bytes(iter([out]))):
        event = json.loads(sse.data)
        assert sse.event == event["type"]
        assert event.pop("sequence_number", number) == number
        event.pop("token_ids", None)
        event.get("response", {}).pop("completed_at", None)
        if events and _joins(events[-1], event):
            continue
        events.append(event)
    return events


def _joins(last: Event, event: Event) -> bool:
    if last["type"] != event["type"] or not event["type"].endswith("delta"):
        return False
    if isinstance(event["delta"], str):
        last["delta"] += event["delta"]
        return True
    (name,) = event["delta"].keys() - {"type"}
    last["delta"][name] += event["delta"][name]
    return True


@BOTH
def test_a_stream_that_breaks_at_any_byte_is_one_whole_stream(path: str) -> None:
    length = len(TypedEngine(path).answer(REQUESTS[path]))
    step = 11 if path == RESPONSES else 5  # bytes; the next test tries others
    for cut in range(0, length + 1, step):
        out, whole = broken(TypedEngine(path), cut)
        assert events_in(out) == events_in(whole), cut


@BOTH
@settings(max_examples=examples(60))
@given(cuts=st.lists(st.integers(0, 9000), min_size=2, max_size=3), step=st.integers(1, 600))
def test_so_is_one_that_breaks_again_and_again(path: str, cuts: list[int], step: int) -> None:
    out, whole = broken(TypedEngine(path), *cuts, step=step)
    assert events_in(out) == events_in(whole)


@BOTH
def test_the_request_for_the_rest_has_the_ids_that_the_client_has(path: str) -> None:
    engine = TypedEngine(path)
    stream, whole = begin(engine)
    sent = stream.pass_on(whole[: whole.index(b"time")])
    request = json.loads(rest(stream))
    tokens = request["resume_token_ids"]
    assert tokens == list(range(PIECES.index('m"}}') + 1))  # the last piece that made an event
    assert request["resume_call_ids"] == ["call_1_0"]
    if path == RESPONSES:
        assert f'"{request["resume_response_id"]}"'.encode() in sent


@BOTH
@pytest.mark.parametrize("step", [1, 13, 10_000])
def test_an_engine_that_is_gone_says_so_in_its_stream(path: str, step: int) -> None:
    engine = TypedEngine(path)
    stream, whole = begin(engine)
    gone = {
        MESSAGES: b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
        b'"message":"x"},"request_id":"r"}\n\n',
        RESPONSES: b'event: response.failed\ndata: {"type":"response.failed","response":{"error":'
        b'{"code":"engine_gone","message":"x"}}}\n\n',
    }[path]
    first = whole[: whole.index(b"mom")].rpartition(b"\n\n")[0] + b"\n\n"
    out, said = b"", first + gone
    for start in range(0, len(said), step):
        if not stream.failed:
            out += stream.pass_on(said[start : start + step])
    assert stream.failed
    assert out == first
    out += stream.pass_on(engine.answer(json.loads(rest(stream))))
    assert events_in(out) == events_in(whole)


@BOTH
def test_another_text_or_another_block_is_no_continuation(path: str) -> None:
    for old, new in ((b"Let me", b"Let us"), (b"weather", b"whether")):
        engine = TypedEngine(path)
        stream, whole = begin(engine)
        stream.pass_on(whole[: whole.index(b"time")])
        rest(stream)
        with pytest.raises(DivergedError):
            stream.pass_on(whole.replace(old, new))


@BOTH
def test_only_pandos_workers_continue_what_has_begun(path: str) -> None:
    engine = TypedEngine(path)
    whole = engine.answer(REQUESTS[path])
    stream = stream_of(path, REQUESTS[path], lambda name: None)
    stream.pass_on(whole[: whole.index(b"time")])
    with pytest.raises(RefusedError, match="only Pando's workers"):
        rest(stream)
