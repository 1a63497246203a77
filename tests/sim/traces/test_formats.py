"""Traces of every format, recognized by content, and errors for wrong ones."""

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pando_fleet.placement.prefix import chat_bytes, tools_bytes
from pando_sim.request import Request
from pando_sim.traces import Reading, TraceError, open_trace
from pando_sim.traces.prompts import TextPrompt
from tests.sim.traces.files import equal_start, json_lines, mooncake, zipped

MESSAGES = [
    {"role": "system", "content": "You know all about aspens."},
    {"role": "user", "content": "How many trunks has Pando?"},
]
TOOLS = [{"type": "function", "function": {"name": "count", "parameters": {}}}]
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
"""


def read(path: Path, **reading: Any) -> list[Request]:
    return list(open_trace(path, Reading(**reading)))


def test_mooncakes_blocks_are_512_tokens_and_the_last_one_is_cut(tmp_path: Path) -> None:
    rows = [mooncake(0, 1100, [7, 8, 9], 5), mooncake(1500, 1024, [7, 8], 0)]
    path = json_lines(tmp_path / "trace", rows)
    assert open_trace(path).format.name == "mooncake"
    first, second = read(path)
    assert (first.number, first.at_s, first.output_tokens) == (0, 0.0, 5)
    assert (second.number, second.at_s, second.output_tokens) == (1, 1.5, 1)
    assert (first.prompt.num_tokens, second.prompt.num_tokens) == (1100, 1024)
    assert equal_start(first.prompt.tokens(), second.prompt.tokens()) == 1024
    assert len(first.prompt.keys()) // 8 == 1100 * 4 // 256


def test_mooncakes_lengths_alone_share_nothing(tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": 600, "output_length": 3}
    one, other = read(json_lines(tmp_path / "trace", [row, row]))
    assert equal_start(one.prompt.tokens(), other.prompt.tokens()) == 0


@pytest.mark.parametrize(
    "row",
    [
        {"body": {"model": "m", "messages": MESSAGES, "tools": TOOLS}},
        {"messages": MESSAGES, "tools": TOOLS},
    ],
)
def test_bodies_become_the_bytes_that_a_router_makes_of_them(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    path = json_lines(tmp_path / "trace", [row | {"timestamp": 3.5, "output_tokens": 4}])
    assert open_trace(path).format.name == "text"
    (request,) = read(path)
    data = chat_bytes(MESSAGES, tools_bytes(TOOLS))
    assert request.prompt.num_bytes == len(data)
    assert request.prompt.keys() == TextPrompt(data).keys()
    assert request.prompt.tokens().tobytes()[: len(data)] == bytes(
        byte & 0x7F if place % 4 == 3 else byte for place, byte in enumerate(data)
    )


def test_token_ids_are_their_own_tokens(tmp_path: Path) -> None:
    row = {"timestamp": 0, "prompt": [5, 6, 70_000], "output_tokens": 1}
    (request,) = read(json_lines(tmp_path / "trace", [row]))
    assert request.prompt.tokens().tolist() == [5, 6, 70_000]
    assert request.prompt.num_tokens == 3


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ({"output_tokens": 3, "output": "twelve bytes"}, 3),
        ({"output_length": 7}, 7),
        ({"response": {"usage": {"completion_tokens": 9}}}, 9),
        ({"response": {"body": {"usage": {"completion_tokens": 11}}}}, 11),
        ({"output": "twelve bytes"}, 3),
        ({"output": ""}, 1),
    ],
)
def test_an_answers_length_is_found_where_it_is_said(
    tmp_path: Path, said: dict[str, Any], tokens: int
) -> None:
    (request,) = read(json_lines(tmp_path / "trace", [{"timestamp": 0, "prompt": "p"} | said]))
    assert request.output_tokens == tokens


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1_760_428_221, 1_760_428_223.5),
        (1_760_428_221_000, 1_760_428_223_500),
        (1_760_428_221_000_000, 1_760_428_223_500_000),
        (1_760_428_221_000_000_000, 1_760_428_223_500_000_000),
        (0, 2.5),
        ("2025-10-14T07:50:21Z", "2025-10-14T09:50:23.5+02:00"),
        ("2025-10-14 07:50:21", "2025-10-14 07:50:23.500000"),
    ],
)
def test_times_may_be_dates_or_unix_times_of_any_unit(
    tmp_path: Path, first: object, second: object
) -> None:
    rows = [{"timestamp": at, "prompt": "p", "output_tokens": 1} for at in (first, second)]
    path = json_lines(tmp_path / "trace", rows)
    assert [request.at_s for request in read(path)] == [0.0, 2.5]
    began_s = open_trace(path).began_s()
    assert began_s == (1_760_428_221.0 if first else None), "a day is known only by a real time"


def test_a_trace_of_several_files_began_with_the_first_request(tmp_path: Path) -> None:
    files = []
    for at in ("2025-10-14T07:50:21Z", "2025-10-14T07:30:00Z"):
        row = {"timestamp": at, "prompt": "p", "output_tokens": 1}
        files.append(json_lines(tmp_path / f"from {at}", [row]))
    assert open_trace(files).began_s() == 1_760_427_000.0


def test_agents_calls_wait_for_the_answer_before_and_then_pause(tmp_path: Path) -> None:
    start = 1_760_428_221_546_118
    rows = [
        {"timestamp": start, "input": "do", "output": "x" * 400, "session_id": "a"},
        {"timestamp": start + 500_000, "input": "else", "output": "x", "session_id": "b"},
        {"timestamp": start + 3_000_000, "input": "do it", "output": "y", "session_id": "a"},
    ]
    path = json_lines(tmp_path / "trace", rows)
    first, other, second = read(path, answer_tokens_per_s=50.0)
    assert (first.after, other.after, second.after) == (None, None, 0)
    assert (first.session, other.session, second.session) == ("a", "b", "a")
    assert second.pause_s == pytest.approx(3.0 - 100 / 50)  # 100 tokens of 4 bytes
    assert read(path, answer_tokens_per_s=1.0)[2].pause_s == 0.0
    assert read(path, closed_loop=False)[2].after is None


def test_a_pause_is_exact_where_the_trace_says_how_long_the_answer_took(tmp_path: Path) -> None:
    rows = [
        {"timestamp": at, "prompt": "p", "output_tokens": 900, "duration_s": 2, "session_id": 1}
        for at in (0, 5, 6)
    ]
    first, second, third = read(json_lines(tmp_path / "trace", rows))
    assert (second.after, second.pause_s) == (0, 3.0)
    # It arrived during the previous answer, so it cannot have waited for it.
    assert (third.after, third.pause_s) == (None, 0.0)
    assert first.after is None


def test_azures_lengths_share_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(AZURE)
    assert open_trace(path).format.name == "azure"
    first, second = read(path)
    assert (first.prompt.num_tokens, first.output_tokens) == (4808, 10)
    assert second.at_s == pytest.approx(0.052)
    assert equal_start(first.prompt.tokens(), second.prompt.tokens()) == 0


def test_compressed_traces_are_known_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(AZURE)
    assert [request.at_s for request in read(zipped(path))] == [
        request.at_s for request in read(path)
    ]


@pytest.mark.parametrize("empty", [{"input": ""}, {"prompt": ""}, {"prompt": []}, {"messages": []}])
def test_an_empty_prompt_is_one_token_that_nobody_shares(
    tmp_path: Path, empty: dict[str, Any]
) -> None:
    row = {"timestamp": 0, "output_tokens": 4} | empty
    one, other = read(json_lines(tmp_path / "trace", [row, row]))
    assert one.prompt.num_tokens == len(one.prompt.tokens()) == 1
    assert equal_start(one.prompt.tokens(), other.prompt.tokens()) == 0


def test_an_empty_prompt_of_mooncakes_is_one_token(tmp_path: Path) -> None:
    (request,) = read(json_lines(tmp_path / "trace", [mooncake(0, 0, [])]))
    assert request.prompt.num_tokens == 1


GOOD = json.dumps(mooncake(1000, 5, [1]))
BAD = [
    ("", None, "contains no requests"),
    ("\n\n", None, "contains no requests"),
    ("hello\n", 1, "has an unknown format"),
    ('{"hello": 1}\n', 1, "azure (Azure's CSV: TIMESTAMP, ContextTokens, GeneratedTokens)"),
    (f"{GOOD}\n\n{{", 3, "is not JSON: it ends too early"),
    (f'{GOOD}\n{{"timestamp": 1}}\n', 2, "input_length is required"),
    (f"{GOOD}\n{json.dumps(mooncake(1000, 600, [1]))}", 2, "1 hash_ids for 600 tokens"),
    (f"{GOOD}\n{json.dumps(mooncake(900, 5, [1]))}", 2, "0.1 s before the previous request"),
    (
        f"{GOOD}\n{json.dumps(mooncake(1000, -5, [1]))}",
        2,
        "input_length must be an integer, at least 0",
    ),
    ('{"prompt": "p", "timestamp": 0}', 1, "does not say how long its answer was"),
    ('{"prompt": 5, "timestamp": 0, "output": ""}', 1, "a string or a list of token ids"),
    ('{"messages": [5], "timestamp": 0, "output": ""}', 1, "messages[0] must be an object"),
    ('{"input": "i", "timestamp": "now", "output": ""}', 1, "not an ISO 8601 time"),
    (AZURE + "2023-11-16 18:17:04.0319600,many,8\n", 4, "ContextTokens is 'many'"),
    (AZURE + "later,1,8\n", 4, "TIMESTAMP is 'later'"),
    (AZURE + "2023-11-16 18:17:04.0319600,1\n", 4, "has 2 columns"),
    ('{"pando_recording": 9, "started": 0}', 1, "is a recording of version 9"),
]


@pytest.mark.parametrize(("content", "line", "message"), BAD)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, content: str, line: int | None, message: str
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(content)
    with pytest.raises(TraceError) as raised:
        read(path)
    place = f"{path}:{line}: " if line is not None else f"{path}: "
    assert str(raised.value).startswith(place)
    assert message in str(raised.value)


def test_lines_that_cannot_be_played_are_counted_once_by_their_reason(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    wrong = ["{", "no", json.dumps(mooncake(1000, 600, [1])), json.dumps(mooncake(1000, 9, [1, 2]))]
    path.write_text("\n".join([GOOD, *wrong, GOOD]))
    trace = open_trace(path, Reading(strict=False))
    for _ in range(2):
        assert [request.number for request in trace] == [0, 1]
    assert trace.unplayed.lines == {
        "it is not JSON": 2,
        "it has more or fewer hash_ids than blocks": 2,
    }
    assert trace.unplayed.first.startswith(f"{path}:2: ")
    again = pickle.loads(pickle.dumps(trace))  # like sending it to the runs' processes
    assert [request.number for request in again] == [0, 1]


CALL = '{"input": "a", "timestamp": 0, "output": ""}'
LATER = CALL.replace("0", '"later"')


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"{AZURE}later,1,8\n", "TIMESTAMP is not a time"),
        (f"{AZURE}2023-11-16 18:17:05,many,8\n", "ContextTokens is not a whole number"),
        (f"{CALL}\n{LATER}\n{CALL}", "timestamp is not an ISO 8601 time"),
        (f"{CALL}\n{CALL}\n{CALL.replace('input', 'messages')}", "would refuse its prompt"),
    ],
)
def test_every_format_goes_on_behind_a_line_that_cannot_be_played(
    tmp_path: Path, content: str, reason: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(content)
    trace = open_trace(path, Reading(strict=False))
    assert len(list(trace)) == 2
    ((found, count),) = trace.unplayed.lines.items()
    assert reason in found
    assert count == 1


def test_a_file_that_is_not_there_or_cut_off_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        open_trace(tmp_path / "nowhere")
    rows = [mooncake(number, 5, [number]) for number in range(2000)]
    path = zipped(json_lines(tmp_path / "trace", rows))
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(TraceError, match=r"cannot be read: .*end-of-stream"):
        read(path)


def test_a_trace_may_be_read_again_and_is_the_same(tmp_path: Path) -> None:
    rows = [mooncake(number, 700, [number % 3, number]) for number in range(20)]
    trace = open_trace(json_lines(tmp_path / "trace", rows))
    assert len(list(trace)) == 20
    for one, other in zip(trace, trace, strict=True):
        assert (one.number, one.at_s) == (other.number, other.at_s)
        assert np.array_equal(one.prompt.tokens(), other.prompt.tokens())


def test_requests_are_not_held(tmp_path: Path) -> None:
    rows = (
        mooncake(number, 512 * 40, list(range(40)), session_id=number % 100)
        for number in range(20_000)
    )
    trace = open_trace(json_lines(tmp_path / "trace", rows))
    tracemalloc.start()
    try:
        for _ in trace:
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000  # bytes; a thousand such requests alone take more


def test_files_of_several_formats_are_no_trace(tmp_path: Path) -> None:
    one = json_lines(tmp_path / "one", [mooncake(0, 5, [1])])
    other = json_lines(tmp_path / "other", [{"timestamp": 0, "prompt": "p", "output": ""}])
    with pytest.raises(TraceError, match="is of format text"):
        open_trace([one, other])


def test_requests_for_one_model_can_be_chosen_where_the_trace_names_models(tmp_path: Path) -> None:
    rows = [
        {"timestamp": at, "output": "", "body": {"model": model, "prompt": model * (at + 1)}}
        for at, model in enumerate("abba")
    ]
    path = json_lines(tmp_path / "trace", rows)
    assert [request.prompt.num_bytes for request in read(path, model="a")] == [1, 4]
    assert [request.at_s for request in read(path, model="b")] == [0.0, 1.0]
    assert len(read(path)) == 4
    nameless = json_lines(tmp_path / "nameless", [mooncake(0, 5, [1])])
    with pytest.raises(TraceError, match="does not name models"):
        read(nameless, model="a")
