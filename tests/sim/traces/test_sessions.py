"""Traces of agents' sessions: what their prompts share, and who waits for whom."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_sim.session import Call, Session
from pando_sim.traces import Reading, TraceError, open_trace
from tests.examples import examples
from tests.sim.traces.files import equal_start, json_lines, packed

Runs = list[list[int]]


def call(runs: Runs, rest: int = 0, *, think_s: float | None = 1.0, **more: Any) -> dict[str, Any]:
    tokens = 64 * sum(size for _, size in runs) + rest
    return {"type": "n", "in": tokens, "out": 7, "think_time": think_s, "ids": runs, **more}


def session(name: str, *calls: dict[str, Any], tools: int = 0) -> dict[str, Any]:
    return {"id": name, "block_size": 64, "tool_tokens": tools, "requests": list(calls)}


def read(path: Path, again: int = 0, **reading: Any) -> list[Session]:
    return list(open_trace(path, Reading(**reading)).sessions(again))


def shared_tokens(one: Call, other: Call) -> int:
    return equal_start(one.prompt.tokens().tolist(), other.prompt.tokens().tolist())


def test_a_call_continues_the_blocks_of_the_one_before(tmp_path: Path) -> None:
    calls = call([[1, 3]], 10), call([[1, 3], [9, 2]], 63, think_s=4.5), call([[1, 2]])
    (found,) = read(json_lines(tmp_path / "trace", [session("a", *calls)]))
    (main,) = found.conversations
    first, second, third = main.calls
    assert [one.prompt.num_tokens for one in main.calls] == [202, 383, 128]
    assert [len(one.prompt.tokens()) for one in main.calls] == [202, 383, 128]
    assert [one.pause_s for one in main.calls] == [1.0, 4.5, 1.0]
    assert [one.repeated_tokens for one in main.calls] == [0, 192, 128]
    assert shared_tokens(first, second) == 192  # the rest of a block is nobody else's
    assert equal_start(packed(first.prompt.keys()), packed(second.prompt.keys())) == 3
    assert third.output_tokens == 7


def test_a_subagent_begins_after_the_answer_that_started_it(tmp_path: Path) -> None:
    inner = call([[50, 2]])
    agent = {"type": "subagent", "t": 30.0, "duration_ms": 9000, "requests": [inner, inner]}
    main = [call([[1, 2]], t=t, api_time=4.0) for t in (0.0, 16.0, 25.0)]  # they take 4 s
    (found,) = read(json_lines(tmp_path / "trace", [session("a", *main, agent)]))
    first, second = found.conversations
    assert (first.after, len(first.calls)) == (None, 3)
    assert (second.after, len(second.calls)) == (1, 2)  # it ran from 21 s, after 16 + 4
    assert [one.repeated_tokens for one in second.calls] == [0, 128]


@pytest.mark.parametrize("is_shared", [True, False])
def test_tools_of_equal_size_are_equal_if_wanted(tmp_path: Path, is_shared: bool) -> None:
    alike = [session(name, call([[1, 5]]), tools=150) for name in "ab"]
    other = session("c", call([[1, 5]]), tools=151)
    path = json_lines(tmp_path / "trace", [*alike, other])
    a, b, c = (one.conversations[0].calls[0] for one in read(path, shared_tools=is_shared))
    assert shared_tokens(a, b) == (128 if is_shared else 0)  # their whole blocks
    assert b.repeated_tokens == (128 if is_shared else 0)
    assert shared_tokens(a, c) == a.repeated_tokens == c.repeated_tokens == 0


def test_a_trace_read_again_has_new_sessions(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "trace", [session("a", call([[1, 5]]), tools=128)])
    first, second, third = islice(open_trace(path).sessions_without_end(), 3)
    assert [one.name for one in (first, second, third)] == ["a", "a/1", "a/2"]
    a, b, _ = (one.conversations[0].calls[0] for one in (first, second, third))
    assert shared_tokens(a, b) == b.repeated_tokens == 128  # the tools


_runs = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=3)


@given(st.lists(_runs, min_size=1, max_size=6), st.integers(0, 200))
@settings(max_examples=examples(60), deadline=None)
def test_repeated_tokens_are_those_that_an_earlier_prompt_begins_with(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[list[tuple[int, int]]], tools: int
) -> None:
    path = tmp_path_factory.mktemp("traces") / "trace"
    calls = [call([list(run) for run in runs], 5) for runs in prompts]
    (found,) = read(json_lines(path, [session("a", *calls, tools=tools)]))
    seen: list[Call] = []
    for one in found.conversations[0].calls:
        keys = packed(one.prompt.keys())
        longest = max((shared_tokens(one, other) // 64 for other in seen), default=0)
        assert one.repeated_tokens == 64 * longest
        assert longest == max((equal_start(keys, packed(o.prompt.keys())) for o in seen), default=0)
        assert one.prompt.tokens().dtype == np.int32
        seen.append(one)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (session("a", {"type": "n", "in": 200, "out": 1, "ids": [[1, 2]]}), "blocks cover 128"),
        (session("a", call([[1, 2]])) | {"block_size": 16}, "blocks of 16 tokens, not of 64"),
        (session("a"), "has no calls"),
        (session("a", call([[1, -2]], 192)), "ids"),
        (session("a", call([[1, 1 << 25]])), "at most 16777216"),
        (
            session("a", call([[1, 1]]), {"type": "subagent", "requests": [{"type": "subagent"}]}),
            "a sub-agent of a sub-agent",
        ),
    ],
)
def test_a_session_that_cannot_be_played_is_named(
    tmp_path: Path, line: dict[str, Any], why: str
) -> None:
    path = json_lines(tmp_path / "trace", [line])
    with pytest.raises(TraceError, match=why):
        read(path)
    assert read(path, strict=False) == []


def test_sessions_are_no_requests_with_times(tmp_path: Path) -> None:
    trace = open_trace(json_lines(tmp_path / "trace", [session("a", call([[1, 2]]))]))
    assert trace.format.name == "sessions"
    with pytest.raises(TraceError, match="--sessions"):
        list(trace)
