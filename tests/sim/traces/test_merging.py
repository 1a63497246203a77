"""Recordings of several routers become one, in the order of their times."""

from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from pando_router.recording.form import FleetState, Header, Outcome, PoolState, Record
from pando_sim.traces import TraceError, open_trace
from pando_sim.traces.merging import GAP_S, merge

BEGAN = 1_790_000_000.0
KEY = b"\1\2\3\4\5\6"


def record(at: float, oldest: float, **more: object) -> Record:
    given = {
        "pool": "default",
        "model": "m",
        "prompt_bytes": 1000,
        "prompt_tokens": 200,
        "keys": KEY,
        "expected_tokens": 64,
        "output_tokens": 20,
        "outcome": Outcome.FINISHED,
        "status": 200,
        "total_s": 1.0,
    }
    return Record(at=BEGAN + at, oldest=BEGAN + oldest, **given | more)  # type: ignore[arg-type]


def state(at: float, router: str, unrecorded: int = 0) -> FleetState:
    pools = {"default": PoolState(policy="cache_aware", replicas=2)}
    return FleetState(fleet_at=BEGAN + at, router=router, unrecorded=unrecorded, pools=pools)


def file(path: Path, secret: str, *lines: Record | FleetState, end: bytes = b"\n") -> Path:
    header = Header(started=BEGAN, router=path.stem, file=path.stem, secret=secret)
    path.write_bytes(b"\n".join(msgspec.json.encode(line) for line in (header, *lines)) + end)
    return path


def test_lines_are_in_the_order_of_their_times_whichever_request_ended_first(
    tmp_path: Path,
) -> None:
    one = file(
        tmp_path / "one.jsonl", "s", state(0, "one"), record(2, 1), record(3, 1), record(1, 4)
    )
    other = file(tmp_path / "other.jsonl", "s", record(2.5, 2.5), state(3.5, "other"))
    out = BytesIO()
    merged = merge([one, other], out)
    header, *rest = out.getvalue().splitlines()
    assert msgspec.json.decode(header, type=Header).secret == "s"
    times = [
        msgspec.json.decode(line, type=dict).get("at")
        or msgspec.json.decode(line, type=dict)["fleet_at"]
        for line in rest
    ]
    assert [at - BEGAN for at in times] == [0, 1, 2, 2.5, 3, 3.5]
    assert (merged.requests, merged.states, merged.routers) == (4, 2, {"one", "other"})
    whole = tmp_path / "merged.jsonl"
    whole.write_bytes(out.getvalue())
    found, apart = list(open_trace(whole)), list(open_trace([one, other]))
    assert [request.at_s for request in found] == [request.at_s for request in apart]
    assert [request.prompt.keys() for request in found] == [
        request.prompt.keys() for request in apart
    ]


def test_what_is_in_it_is_counted_and_what_is_not(tmp_path: Path) -> None:
    later = 10 * GAP_S
    one = file(
        tmp_path / "one.jsonl",
        "s",
        state(0, "one"),
        record(1, 1, session="a", cached_tokens=50, stream=True),
        record(2, 2, session="a", outcome=Outcome.REFUSED, model="n", pool="", output_tokens=0),
        state(later, "one", unrecorded=3),
    )
    other = file(tmp_path / "other.jsonl", "t", record(later + 1, later + 1, session="b"))
    merged = merge([one, other], BytesIO())
    assert merged.outcomes == {"finished": 2, "refused": 1}
    assert merged.models == {"m": 2, "n": 1}
    assert merged.pools == {"default": 2}
    assert (merged.prompt_tokens, merged.output_tokens) == (600, 40)
    assert (merged.cached_tokens, merged.reported_tokens) == (50, 200)
    assert (merged.sessions.count, merged.streams, merged.unrecorded) == (2, 1, 3)
    assert merged.gaps == [(BEGAN + 2, BEGAN + later)]
    assert merged.secrets == {"s", "t"}


def test_a_file_that_still_grows_is_read_to_its_last_line(tmp_path: Path) -> None:
    one = file(tmp_path / "one.jsonl", "s", record(1, 1), record(2, 2), end=b'\n{"at": 17')
    assert merge([one], BytesIO()).requests == 2


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "trace.jsonl"
    other.write_text('{"timestamp": 0, "input_length": 5, "output_length": 2, "hash_ids": [1]}\n')
    with pytest.raises(TraceError, match="is no recording"):
        merge([other], BytesIO())
