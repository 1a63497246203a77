"""Recordings of a real router are read as requests that share the same prefixes as the real
ones."""

import asyncio
import random
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_router.recording.form import HIDDEN_BYTES, Header, Outcome, Record
from pando_sim.request import Request
from pando_sim.traces import Reading, open_trace
from tests.router.world import Replica, Stream, cached, completion, serving
from tests.sim.traces.files import equal_start, packed

TEXT = "One root, forty thousand trunks. " * 100


def write(path: Path, *records: Record, end: str = "\n") -> Path:
    lines = [msgspec.json.encode(line).decode() for line in (Header(started=0.0), *records)]
    path.write_text("\n".join(lines) + end)
    return path


def record(at: float, oldest: float, **more: object) -> Record:
    given = {
        "model": "m",
        "prompt_bytes": 1000,
        "prompt_tokens": 200,
        "expected_tokens": 64,
        "output_tokens": 20,
        "outcome": Outcome.FINISHED,
        "status": 200,
        "total_s": 1.0,
    }
    return Record(at=at, oldest=oldest, **given | more)  # type: ignore[arg-type]


def shared(one: Request, other: Request) -> int:
    """Chunks."""
    return equal_start(packed(one.prompt.keys()), packed(other.prompt.keys()))


async def test_a_routers_recording_is_replayed_with_the_same_sharing(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    prompts = [TEXT, TEXT[:1000] + "other" * 300, TEXT + "and on" * 200, "short"]
    async with Replica(redis_url, "r") as replica, serving(redis_url, record=file) as router:
        for prompt in prompts:
            replica.answer = cached(0, len(prompt) // 5)
            assert (await router.post("/v1/completions", completion(prompt))).status == 200
    trace = open_trace(file)
    assert trace.format.name == "recording"
    requests = list(trace)
    assert [request.number for request in requests] == [0, 1, 2, 3]
    assert requests[0].at_s == 0.0
    for prompt, request in zip(prompts, requests, strict=True):
        assert request.prompt.num_bytes == len(prompt)
        assert request.prompt.num_tokens == pytest.approx(len(prompt) / 5, abs=1)
        assert len(request.prompt.tokens()) == request.prompt.num_tokens
    first, branch, longer, _ = requests
    assert shared(first, branch) == 1000 // 256
    assert shared(first, longer) == len(TEXT) // 256
    tokens = equal_start(first.prompt.tokens(), longer.prompt.tokens())
    assert tokens == pytest.approx(len(TEXT) // 256 * 256 / 5, abs=1)


async def test_adapters_are_replayed_as_such_beside_their_base(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    async with (
        Replica(redis_url, "r", adapters=("pirate", "poet")),
        serving(redis_url, record=file) as router,
    ):
        for model in ("pirate", "m", "poet", "pirate"):
            await router.post("/v1/completions", completion(TEXT, model=model))
    requests = list(open_trace(file))
    assert [request.adapter for request in requests] == ["pirate", "", "poet", "pirate"]
    pirate, base, poet, again = requests
    assert shared(pirate, base) == shared(pirate, poet) == 0
    assert shared(pirate, again) == len(TEXT) // 256
    for model, count in (("m", 4), ("pirate", 2), ("poet", 1)):
        assert len(list(open_trace(file, Reading(model=model)))) == count


async def test_a_sessions_requests_wait_for_its_answers_as_they_did(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    named = {"x-session-id": "s"}
    async with Replica(redis_url, "r") as replica, serving(redis_url, record=file) as router:
        replica.answer = slow = Stream()
        long = asyncio.create_task(router.post("/v1/completions", completion(TEXT), **named))
        await slow.started.wait()
        replica.answer = replica.say_name
        await router.post("/v1/completions", completion("meanwhile" + TEXT), **named)
        await router.post("/v1/completions", completion("afterwards" + TEXT), **named)
        slow.end()
        await long
    requests = list(open_trace(file))
    # Number 1 came while 0 was under way, 2 after 1.
    assert [request.after for request in requests] == [None, None, 1]
    assert len({request.session for request in requests}) == 1
    assert 0 <= requests[2].pause_s <= requests[2].at_s - requests[1].at_s


def test_unanswered_requests_have_the_length_that_was_expected_and_invalid_ones_are_left_out(
    tmp_path: Path,
) -> None:
    outcomes = list(Outcome)
    records = [record(float(at), at + 1.0, outcome=outcome) for at, outcome in enumerate(outcomes)]
    found = {
        outcomes[int(r.at_s)]: r.output_tokens for r in open_trace(write(tmp_path / "r", *records))
    }
    assert found == {
        Outcome.FINISHED: 20,
        Outcome.LEFT: 20,
        Outcome.REFUSED: 64,
        Outcome.FAILED: 64,
    }


spans = st.lists(
    st.tuples(st.floats(0, 100, width=32), st.floats(0, 100, width=32)), min_size=1, max_size=40
)


@given(spans)
def test_requests_come_in_the_order_of_their_arrival_however_they_ended(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[float, float]]
) -> None:
    spans = sorted(spans)
    left = dict(enumerate(spans))
    records = []
    for number in sorted(left, key=lambda number: sum(spans[number])):
        at, total = left.pop(number)
        end = at + total
        begun = [start for start, _ in left.values() if start <= end]
        records.append(record(at, min(begun, default=end), total_s=total))
    path = write(tmp_path_factory.mktemp("recording") / "r", *records)
    times = [request.at_s for request in open_trace(path)]
    assert times == pytest.approx([at - spans[0][0] for at, _ in spans])


def test_no_more_is_held_than_came_while_the_oldest_request_ran(tmp_path: Path) -> None:
    draw = random.Random(1)
    records = [record(float(at), at + 0.5, prompt_bytes=draw.randrange(999)) for at in range(3000)]
    requests = iter(open_trace(write(tmp_path / "r", *records)))
    path = tmp_path / "r"
    with path.open("a") as file:  # an error far behind is not found before it is reached
        file.write("{}\n")
    for _ in range(1500):
        next(requests)


def test_several_routers_recordings_are_one_trace(tmp_path: Path) -> None:
    keys = [bytes([number] * HIDDEN_BYTES) for number in range(4)]
    one = [record(10.0 + at, 11.0 + at, keys=b"".join(keys[:3])) for at in range(0, 6, 2)]
    other = [record(11.0 + at, 12.0 + at, keys=b"".join(keys)) for at in range(0, 6, 2)]
    dense = [record(11.5, 12.5, keys=keys[0], prompt_tokens=900, prompt_bytes=1000)]
    files = [
        write(tmp_path / name, *records)
        for name, records in (("one", one), ("other", other), ("dense", dense))
    ]
    requests = list(open_trace(files))
    assert [request.at_s for request in requests] == [0, 1, 1.5, 2, 3, 4, 5]
    assert [request.number for request in requests] == list(range(7))
    for left, right in pairwise([requests[0], requests[1], *requests[3:]]):
        assert shared(left, right) == 3
        # A token has the same size in all files, or the second router's would be others.
        assert equal_start(left.prompt.tokens(), right.prompt.tokens()) >= 3 * 256 // 5 - 1


def test_one_models_requests_can_be_chosen(tmp_path: Path) -> None:
    records = [record(float(at), at + 1.0, model=model) for at, model in enumerate("abba")]
    path = write(tmp_path / "r", *records)
    assert [request.at_s for request in open_trace(path, Reading(model="a"))] == [0.0, 3.0]


def test_a_recording_may_be_continued_by_the_next_file_and_may_be_cut_off(tmp_path: Path) -> None:
    first = write(tmp_path / "a", record(0.0, 2.0), record(1.0, 2.0))
    second = write(tmp_path / "b", record(2.0, 3.0), end='\n{"at": 3.0, "old')
    (tmp_path / "both").write_bytes(first.read_bytes() + second.read_bytes())
    assert len(list(open_trace(tmp_path / "both"))) == 3
