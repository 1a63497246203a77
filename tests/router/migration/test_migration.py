"""Streams that break at any byte, repeatedly: the client gets one whole stream."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from pando_fleet.current import Current
from pando_fleet.http.server.byte_budget import ByteBudget
from pando_router.configuration.settings import RouterSettings
from pando_router.endpoints import ENDPOINTS
from pando_router.migration.errors import DivergedError, RefusedError
from pando_router.migration.plan import Plan, plan
from pando_router.migration.recording import Recording
from pando_router.migration.stream import Count, NeedsCountError, Stream
from tests.examples import examples
from tests.router.scripted_engine import PROMPT_TOKENS, TEXT, Engine, Event, event

CHAT, COMPLETION, NATIVE = "/v1/chat/completions", "/v1/completions", "/generate"
USAGE = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
REQUESTS: dict[str, Event] = {
    CHAT: {"messages": [{"role": "user", "content": "P"}], "temperature": 0, **USAGE},
    COMPLETION: {"prompt": "P", "temperature": 0, **USAGE},
    NATIVE: {"text": "P", "sampling_params": {"temperature": 0}, "stream": True},
}


SCORED: dict[str, tuple[str, Event]] = {
    "chat": (CHAT, {"logprobs": True}),
    "completion": (COMPLETION, {"logprobs": 0}),
    "echoed": (COMPLETION, {"logprobs": 0, "echo": True}),
    "native": (NATIVE, {"return_logprob": True, "logprob_start_len": 0}),
}

DEFAULTS = RouterSettings()


def planned(path: str, raw: bytes, settings: RouterSettings) -> Plan | None:
    return plan(settings, ENDPOINTS[path].migration, ENDPOINTS[path].parse(raw))


def stream_of(path: str, body: Event, count: Count, settings: RouterSettings = DEFAULTS) -> Stream:
    """The stream of a request that may migrate, at its first replica."""
    raw = json.dumps(body).encode()
    made = planned(path, raw, settings)
    assert made is not None
    memory = ByteBudget(Current(settings.migrate_memory_bytes))
    return begun(made, raw, count, settings, memory)


def begun(
    plan: Plan, raw: bytes, count: Count, settings: RouterSettings, memory: ByteBudget
) -> Stream:
    recording = Recording(settings.migrate_stream_bytes, memory)
    return Stream.begun(plan, raw, count, recording, settings.max_migrations)


def begin(engine: Engine, body: Event, **settings: Any) -> tuple[Stream, bytes]:
    """A stream at its first replica, and the whole answer of this replica."""
    whole = engine.answer(body)
    options = RouterSettings(**settings) if settings else DEFAULTS
    stream = stream_of(engine.path, body, engine.count, options)
    return stream, whole


def broken(engine: Engine, body: Event, *cuts: int, step: int = 97, **settings: Any) -> bytes:
    """What the client gets if each replica in turn breaks after this many bytes."""
    stream, whole = begin(engine, body, **settings)
    out = b""
    for cut in (*cuts, None):
        said = whole[:cut]
        for start in range(0, len(said), step):
            out += stream.pass_on(said[start : start + step])
        if cut is None:
            break
        if not stream.lost():
            return out + stream.ending
        whole = engine.answer(json.loads(stream.ask()))
        stream.goes_on(engine.count)
    return out + stream.end()


def rest(stream: Stream) -> bytes:
    """The request for the missing part of a stream that lost its replica."""
    assert stream.lost()
    return stream.ask()


def events_of(out: bytes) -> list[Event]:
    """Parsed by OpenAI's client; every event must be complete."""
    found = [sse.data for sse in SSEDecoder().iter_bytes(iter([out]))]
    assert found.pop() == "[DONE]", "the stream ends once, with [DONE]"
    return [json.loads(data) for data in found]


def check(path: str, out: bytes, *, headers: bool = True) -> None:
    """It is one whole answer of the first replica, and its headers, or else its first event, report
    the cached tokens."""
    events = events_of(out)
    if path == NATIVE:
        last, texts = events[-1], [e["text"] for e in events]
        assert last["text"] == TEXT
        assert last["output_ids"] == list(range(9))
        assert all(b.startswith(a) for a, b in pairwise(texts))
        assert len({e["meta_info"]["id"] for e in events}) == 1
        assert [e for e in events if e["meta_info"]["finish_reason"]] == [last]
        meta = last["meta_info"]
        assert meta["finish_reason"]["length"] == 9
        told = [meta[name] for name in ("prompt_tokens", "completion_tokens", "cached_tokens")]
        assert told[:2] == [PROMPT_TOKENS, 9]
        return
    assert len({(e["id"], e["created"], e["model"]) for e in events}) == 1
    choices = [choice for e in events for choice in e["choices"]]
    says = [choice.get("delta", choice) for choice in choices]
    assert "".join(s.get("content", s.get("text", "")) for s in says) == TEXT
    assert sum("role" in s for s in says) == (path == CHAT)
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["stop"]
    [usage] = [e["usage"] for e in events if not e["choices"]]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (PROMPT_TOKENS, 9)
    assert usage["total_tokens"] == PROMPT_TOKENS + 9
    cached = 9 if headers else 10 - int(events[0]["id"][-1])
    assert usage["prompt_tokens_details"]["cached_tokens"] == cached


@pytest.mark.parametrize("path", REQUESTS)
def test_a_stream_that_breaks_at_any_byte_is_one_whole_stream(path: str) -> None:
    length = len(Engine(path).answer(REQUESTS[path]))
    for cut in range(length + 1):
        check(path, broken(Engine(path), REQUESTS[path], cut))


@pytest.mark.parametrize("path", REQUESTS)
@settings(max_examples=examples(40))
@given(cuts=st.lists(st.integers(0, 1400), min_size=2, max_size=3), step=st.integers(1, 600))
def test_so_is_one_that_breaks_again_and_again(path: str, cuts: list[int], step: int) -> None:
    check(path, broken(Engine(path), REQUESTS[path], *cuts, step=step))


def scores_of(path: str, out: bytes) -> list[int]:
    """The tokens that have log-probabilities, in order; -1 stands for the prompt's."""
    events = events_of(out)
    if path == NATIVE:
        meta = events[-1]["meta_info"]
        return [s[1] for s in meta["input_token_logprobs"] + meta["output_token_logprobs"]]
    found: list[int] = []
    for scores in (choice["logprobs"] for e in events for choice in e["choices"]):
        found += map(int, scores.get("tokens", ()))
        found += [int(item["token"]) for item in scores.get("content", ())]
    return found


@pytest.mark.parametrize("name", SCORED)
def test_a_stream_with_log_probabilities_has_each_of_them_once_wherever_it_breaks(
    name: str,
) -> None:
    path, fields = SCORED[name]
    body = REQUESTS[path] | fields
    whole = Engine(path).answer(body)
    truth = scores_of(path, whole)
    assert truth[-9:] == list(range(9))
    for cut in range(len(whole) + 1):
        for again in (None, 700, 1500) if cut % 7 == 0 else (None,):
            cuts = [cut] if again is None else [cut, again]
            out = broken(Engine(path), body, *cuts)
            assert scores_of(path, out) == truth, cuts
            if name != "echoed":
                check(path, out)


@pytest.mark.parametrize("path", REQUESTS)
def test_another_engine_gets_the_text_so_far_and_goes_on_behind_it(path: str) -> None:
    engine = Engine(path, pando=False)
    length = len(engine.answer(REQUESTS[path]))
    for cut in range(length + 1):
        engine = Engine(path, pando=False)
        try:
            out = broken(engine, REQUESTS[path], cut)
        except RefusedError as refusal:
            assert "how it ended" in str(refusal)
            continue
        if b'"choices": []' in out or b'"choices":[]' in out or path == NATIVE:
            check(path, out, headers=False)
        else:  # it broke between its finish and its usage, which no other replica knows
            assert engine.asked == [REQUESTS[path]]


def test_a_bound_on_tokens_is_what_is_left_for_another_engine() -> None:
    for path, name in ((CHAT, "max_completion_tokens"), (COMPLETION, "max_tokens")):
        body = REQUESTS[path] | {name: 9}
        engine = Engine(path, pando=False)
        stream, whole = begin(engine, body)
        stream.pass_on(whole[: whole.index(b"quoted")])
        request = json.loads(rest(stream))
        assert request[name] == 9 - 3


def test_tokens_without_reported_ids_must_be_counted() -> None:
    stream = stream_of(COMPLETION, REQUESTS[COMPLETION] | {"max_tokens": 9}, lambda name: None)
    stream.pass_on(event({"id": "a", "choices": [{"index": 0, "text": "Hello"}]}))
    with pytest.raises(NeedsCountError) as needed:
        rest(stream)
    assert needed.value.text == "Hello"
    request = json.loads(stream.ask(count_tokens=2))
    assert (request["prompt"], request["max_tokens"]) == ("PHello", 7)


@pytest.mark.parametrize(
    ("fields", "options", "reason"),
    [
        ({"temperature": 0.5}, {}, "neither greedy nor seeded"),
        ({"temperature": None}, {}, "neither greedy nor seeded"),
        ({"temperature": 0.5}, {"migrate": "always"}, None),
        ({"temperature": 0.5, "seed": 0}, {}, None),
        ({"n": 2}, {}, "several choices"),
        ({}, {"migrate_stream_bytes": 64}, "migrate_stream_bytes"),
        ({}, {"migrate_memory_bytes": 64}, "migrate_memory_bytes"),
    ],
)
def test_what_may_not_go_on_is_refused(
    fields: Event, options: dict[str, Any], reason: str | None
) -> None:
    stream, whole = begin(Engine(COMPLETION), REQUESTS[COMPLETION] | fields, **options)
    got = stream.pass_on(whole[:600])
    assert got
    if reason is None:
        assert rest(stream)
        return
    with pytest.raises(RefusedError, match=reason):
        rest(stream)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"prompt": [1, 2]}, "token ids"),
        ({"echo": True}, "echo"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_another_engine_is_not_asked_for_what_text_cannot_say(fields: Event, reason: str) -> None:
    stream, whole = begin(Engine(COMPLETION, pando=False), REQUESTS[COMPLETION])
    stream.body = json.dumps(REQUESTS[COMPLETION] | fields).encode()
    stream.pass_on(whole[:600])
    with pytest.raises(RefusedError, match=reason):
        rest(stream)


def test_nothing_is_migrated_where_that_is_off() -> None:
    off = RouterSettings(migrate="off")
    assert planned(CHAT, json.dumps(REQUESTS[CHAT]).encode(), off) is None


def test_a_stream_is_migrated_only_so_often() -> None:
    with pytest.raises(RefusedError, match="migrated 2 times"):
        broken(Engine(CHAT), REQUESTS[CHAT], 600, 600, 600, max_migrations=2)


def test_another_text_than_was_sent_is_never_appended() -> None:
    stream, whole = begin(Engine(COMPLETION), REQUESTS[COMPLETION])
    stream.pass_on(whole[:600])
    request = json.loads(rest(stream))
    other = Engine(COMPLETION, pieces=["Hel", "LO"] + ["x"] * 7)
    whole = other.answer(request)
    stream.goes_on(other.count)
    with pytest.raises(DivergedError):
        stream.pass_on(whole)


def test_a_replica_that_does_not_resume_is_noticed() -> None:
    stream, whole = begin(Engine(COMPLETION), REQUESTS[COMPLETION])
    stream.pass_on(whole[:600])
    assert rest(stream)
    with pytest.raises(RefusedError, match="cannot resume answers"):
        stream.goes_on(lambda name: None)


def test_a_worker_that_says_it_is_gone_is_lost_without_a_word_of_it_to_the_client() -> None:
    engine = Engine(CHAT)
    stream, whole = begin(engine, REQUESTS[CHAT])
    error = event({"error": {"message": "gone", "type": "service_unavailable_error"}})
    cut = whole.index(b"data: ", 700)
    out = stream.pass_on(whole[:cut] + error.replace(b'": {', b'":{'))
    assert stream.failed
    whole = engine.answer(json.loads(rest(stream)))
    stream.goes_on(engine.count)
    check(CHAT, out + stream.pass_on(whole) + stream.end())


@given(st.lists(st.binary(max_size=9)), st.integers(0, 60))
def test_a_recording_loses_no_byte_and_gives_its_memory_back(
    chunks: list[bytes], limit: int
) -> None:
    chunks = [chunk.replace(b"0", b"\n\n") for chunk in chunks]
    memory = ByteBudget(Current(40))
    recording = Recording(limit, memory)
    out = b"".join(map(recording.whole_events, chunks))
    rest = recording.rest()
    assert out + rest == b"".join(chunks)
    if not recording.forgotten:
        assert recording.events() == out
        assert b"\n\n" not in rest
    recording.close()
    assert memory.held == 0


def test_an_event_that_does_not_end_counts_as_memory() -> None:
    memory = ByteBudget(Current(100))
    recording = Recording(1_000, memory)
    assert recording.whole_events(b"x" * 60) == b""
    assert memory.held == 60
    assert recording.whole_events(b"y" * 60) == b"x" * 60 + b"y" * 60
    assert memory.held == 0
    assert "migrate_memory_bytes" in recording.forgotten


@pytest.mark.parametrize(
    ("fields", "pando"),
    [({"temperature": 1}, True), ({"n": 2}, True), ({"logprobs": True}, False)],
)
@pytest.mark.parametrize("step", [1, 97, 10_000])
def test_of_a_stream_that_may_not_go_on_no_text_is_kept(
    fields: Event, pando: bool, step: int
) -> None:
    memory = ByteBudget(Current(1 << 30))
    engine = Engine(CHAT, pando=pando)
    body = REQUESTS[CHAT] | fields
    raw = json.dumps(body).encode()
    made = planned(CHAT, raw, DEFAULTS)
    assert made is not None
    whole = engine.answer(body)
    stream = begun(made, raw, engine.count, DEFAULTS, memory)
    out = b""
    for start in range(0, len(whole), step):
        out += stream.pass_on(whole[start : start + step])
        if b"Hel" in out:
            assert memory.held == 0
    assert out + stream.end() == whole
    assert b"Hel" in out


def test_any_stream_is_asked_for_again_before_it_has_text() -> None:
    body = REQUESTS[CHAT] | {"temperature": 1}
    whole = Engine(CHAT).answer(body)
    first = whole.index(b"\n\n") + 2
    assert b"Hel" not in whole[:first]
    check(CHAT, broken(Engine(CHAT), body, first))
