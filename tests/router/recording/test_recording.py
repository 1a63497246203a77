"""What a real router records of its requests, and what it does not."""

import asyncio
import shutil
import stat
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from time import time

import msgspec
import pytest
from pydantic import ValidationError

from pando_fleet.placement.prefix import KEY_BYTES, chunk_keys, seed
from pando_fleet.redis.client import connect
from pando_fleet.redis.keys import RECORDING
from pando_fleet.registry.replica import ReplicaState
from pando_router.configuration.settings import RouterSettings
from pando_router.recording import recorder
from pando_router.recording.form import HIDDEN_BYTES, FleetState, Header, Outcome, Record
from tests.router.process.router_process import router_process
from tests.router.world import (
    Handler,
    Replica,
    RouterClient,
    Stream,
    cached,
    chat,
    completion,
    never,
    reset,
    serving,
    status,
    until,
)

TEXT = "The aspen grove is one organism. " * 40
SECRET = "sixteen characters or more"
STATE = b'{"fleet_at"'


def read(path: Path) -> tuple[Header, list[Record]]:
    """The file's header and its requests; `states` has its other lines."""
    first, *rest = path.read_bytes().splitlines()
    return (
        msgspec.json.decode(first, type=Header),
        [msgspec.json.decode(line, type=Record) for line in rest if not line.startswith(STATE)],
    )


def states(path: Path) -> list[FleetState]:
    return [
        msgspec.json.decode(line, type=FleetState)
        for line in path.read_bytes().splitlines()
        if line.startswith(STATE)
    ]


def hidden(record: Record) -> list[bytes]:
    size = HIDDEN_BYTES
    return [record.keys[start : start + size] for start in range(0, len(record.keys), size)]


async def test_a_request_is_recorded_with_its_lengths_times_and_outcome(
    redis_url: str, tmp_path: Path
) -> None:
    file, began = tmp_path / "requests.jsonl", time()
    stream = Stream()
    async with Replica(redis_url, "r") as replica, serving(redis_url, record=file) as router:
        replica.answer = stream
        asking = asyncio.create_task(
            router.post("/v1/chat/completions", chat(TEXT, max_tokens=7), **{"x-session-id": "s"})
        )
        await stream.started.wait()
        for number in range(3):
            stream.put(b'data: {"n": %d}\n\n' % number)
        stream.put(b'data: {"usage": {"prompt_tokens": 400, "completion_tokens": 5}}\n\n')
        stream.end()
        assert (await asking).status == 200
    header, (record,) = read(file)
    assert header.pando_recording == 1
    assert (record.model, record.pool, record.replica, record.tries) == ("m", "default", "r", 1)
    assert (record.outcome, record.status) == (Outcome.FINISHED, 200)
    assert (record.prompt_tokens, record.output_tokens, record.expected_tokens) == (400, 5, 7)
    assert len(TEXT) < record.prompt_bytes < len(TEXT) + 20
    assert len(hidden(record)) == record.prompt_bytes // 256
    assert record.first_s is not None
    assert 0 < record.first_s <= record.total_s
    assert began <= record.at <= record.oldest
    assert began <= header.started <= time()  # when its first line was written
    assert record.session not in ("", "s")


async def test_what_the_replica_says_of_its_cache_is_recorded(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    async with Replica(redis_url, "r") as replica, serving(redis_url, record=file) as router:
        replica.answer = cached(192, 330)
        await router.post("/v1/completions", completion(TEXT))
    _, (record,) = read(file)
    assert (record.cached_tokens, record.prompt_tokens) == (192, 330)


async def test_a_recording_holds_no_text_no_name_and_no_key_that_can_be_tried_out(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    async with Replica(redis_url, "r"), serving(redis_url, record=file) as router:
        body = completion(TEXT, user="user-of-test")
        await router.post("/v1/completions", body, **{"x-session-id": "session-of-test"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written = file.read_bytes()
    for word in (b"aspen", b"grove", b"user-of-test", b"session-of-test"):
        assert word not in written
    _, (record,) = read(file)
    keys = chunk_keys(TEXT.encode(), seed("m"))  # an attacker who guesses the text would try these
    for start in range(0, len(keys), KEY_BYTES):
        key = keys[start : start + KEY_BYTES]
        for part in (key[:HIDDEN_BYTES], key[-HIDDEN_BYTES:]):
            assert part not in hidden(record)


async def test_equal_beginnings_stay_equal_within_a_secret_and_only_there(
    redis_url: str, tmp_path: Path
) -> None:
    secrets = (None, SECRET, SECRET)
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    # One replica for all: a router could get the port of one that has left, and send to itself.
    async with Replica(redis_url, "r"):
        for secret, file in zip(secrets, files, strict=True):
            async with serving(redis_url, record=file, record_secret=secret) as router:
                for prompt in (TEXT, TEXT[:600] + "x" * 900, TEXT + TEXT):
                    await router.post("/v1/completions", completion(prompt))
    alone, one, other = ([hidden(record) for record in read(file)[1]] for file in files)
    for first, branch, longer in (alone, one, other):
        assert longer[: len(first)] == first
        assert branch[:2] == first[:2]
        assert not set(branch[2:]) & set(first)
    assert one == other
    assert not set(alone[0]) & set(one[0])


@pytest.mark.parametrize(
    ("answer", "code", "outcome"),
    [
        (status(400), 400, Outcome.INVALID),
        (status(429), 429, Outcome.REFUSED),
        (status(503), 503, Outcome.REFUSED),
        (status(500), 500, Outcome.FAILED),
        (reset, 503, Outcome.REFUSED),  # there is no other replica to take it
    ],
)
async def test_what_became_of_a_request_is_recorded(
    redis_url: str, tmp_path: Path, answer: Handler, code: int, outcome: Outcome
) -> None:
    file = tmp_path / "requests.jsonl"
    async with Replica(redis_url, "r") as replica, serving(redis_url, record=file) as router:
        replica.answer = answer
        assert (await router.post("/v1/completions", completion(TEXT))).status == code
    _, (record,) = read(file)
    assert (record.outcome, record.status) == (outcome, code)


async def test_clients_that_leave_and_streams_that_break_are_distinguished(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    recording = serving(redis_url, record=file, migrate="off")
    async with Replica(redis_url, "r") as replica, recording as router:
        replica.answer = never
        asking = asyncio.create_task(router.post("/v1/completions", completion("leaves" + TEXT)))
        await until(lambda: replica.received, "the replica having the request")
        asking.cancel()
        await until(lambda: replica.cancelled, "the replica's request being cancelled")
        replica.answer = stream = Stream()
        asking = asyncio.create_task(router.post("/v1/completions", completion(TEXT, stream=True)))
        stream.put(b'data: {"n": 1}\n\n')
        await stream.started.wait()
        stream.die()
        assert (await asking).status == 200
    _, (left, broken) = read(file)
    assert (left.outcome, left.output_tokens) == (Outcome.LEFT, 0)
    assert (broken.outcome, broken.status) == (Outcome.FAILED, 200)


async def test_what_computes_no_prompt_is_not_recorded(redis_url: str, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    async with Replica(redis_url, "r"), serving(redis_url, record=file) as router:
        await router.post("/tokenize", {"model": "m", "prompt": TEXT})
        await router.post("/v1/completions", completion(TEXT))
    assert len(read(file)[1]) == 1


async def test_each_record_names_the_oldest_request_that_is_still_open(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    async with Replica(redis_url, "r") as replica, serving(redis_url, record=file) as router:
        replica.answer = slow = Stream()
        long = asyncio.create_task(router.post("/v1/completions", completion("long" + TEXT)))
        await slow.started.wait()
        replica.answer = replica.say_name
        for number in range(3):
            await router.post("/v1/completions", completion(f"{number}{TEXT}"))
        slow.end()
        await long
    _, (*short, last) = read(file)
    assert [record.oldest for record in short] == [last.at] * 3
    assert last.at < min(record.at for record in short)
    assert last.oldest >= max(record.at for record in short)


async def test_a_disk_that_takes_nothing_costs_records_and_no_requests(
    redis_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    file = folder / "requests.jsonl"
    lost = "pando_router_unrecorded_requests_total"
    async with Replica(redis_url, "r"), serving(redis_url, record=file) as router:
        shutil.rmtree(folder)
        assert (await router.post("/v1/completions", completion(TEXT))).status == 200

        async def is_lost() -> bool:
            return await router.metric(lost) == 1

        await until(is_lost, "the lost record being counted")
        folder.mkdir()
        assert (await router.post("/v1/completions", completion(TEXT))).status == 200
    assert len(read(file)[1]) == 1


async def test_the_fleet_is_in_the_recording_with_what_its_replicas_measured(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    async with (
        Replica(
            redis_url, "a", capacity_tokens=5000, prompt_tokens_total=100, decoded_tokens_total=7
        ) as replica,
        Replica(redis_url, "late") as late,
        serving(redis_url, record=file, policy="round_robin") as router,
    ):
        await late.say(state=ReplicaState.STARTING)
        await router.ready("a")
        await router.ready("late", state="starting")
        await until(lambda: file.exists() and states(file), "the first line about the fleet")
        await replica.say(
            prompt_tokens_total=350, decoded_tokens_total=57, decode_seconds_total=0.5
        )
        await asyncio.sleep(recorder.EVERY_S)  # so that `late` starts for a while
        await late.say(state=ReplicaState.READY)
        await router.ready("a", "late")

        async def is_counted() -> bool:
            (row,) = [
                row
                for row in (await router.get("/fleet")).json["pools"]["default"]
                if row["replica"] == "a"
            ]
            return bool(row["decode_tokens_per_s"] == 25.0)

        await replica.say(decode_tokens_per_s=25.0)
        await until(is_counted, "the last heartbeat of a")
    *_, last = states(file)
    pool = last.pools["default"]
    assert (pool.policy, pool.model, pool.replicas, pool.ready) == ("round_robin", "m", 2, 2)
    (measured,) = [one for one in pool.measured if one.replica == "a"]
    assert (measured.capacity_tokens, measured.decode_tokens_per_s) == (5000, 25.0)
    assert (measured.prompt_tokens, measured.decoded_tokens, measured.decode_s) == (250, 50, 0.5)
    assert last.since_s > 0


async def test_what_has_no_room_to_wait_is_dropped_and_counted(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 2_000  # for the line about the fleet with its replica, which is the first, and for some
    monkeypatch.setattr(recorder, "MAX_WAITING", room)
    monkeypatch.setattr(recorder, "AT_ONCE_BYTES", 1)  # each request's line by itself
    monkeypatch.setattr(recorder, "EVERY_S", 3600.0)  # nothing is written until the end
    file = tmp_path / "requests.jsonl"
    async with Replica(redis_url, "r"), serving(redis_url, record=file) as router:
        for _ in range(9):
            await router.post("/v1/completions", completion("short"))
        dropped = await router.metric("pando_router_unrecorded_requests_total")
    _, *lines = file.read_bytes().splitlines(keepends=True)
    assert 0 < len(read(file)[1]) == 9 - dropped < 9
    assert sum(map(len, lines)) <= room


async def test_recording_is_switched_at_all_routers_and_stays_so_for_those_that_start_later(
    redis_url: str, tmp_path: Path
) -> None:
    paths = [tmp_path / name / "requests.jsonl" for name in ("one", "other", "later")]
    for path in paths:
        path.parent.mkdir()

    async def asked(router: RouterClient) -> None:
        assert (await router.post("/v1/completions", completion(TEXT))).status == 200

    async with Replica(redis_url, "r"), AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(serving(redis_url, record=path, record_on=False))
            for path in paths[:2]
        ]

        async def is_on(router: RouterClient, on: bool = True) -> bool:
            return (await router.get("/recording")).json["on"] is on

        assert await is_on(one, False)
        await asked(one)
        answer = await one.request("PATCH", "/recording", data=b'{"on": true}')
        assert (answer.status, answer.json["on"], answer.json["changed"]) == (200, True, True)
        await until(lambda: is_on(other), "the other router recording, too")
        await asked(one)
        await asked(other)
        later = await stack.enter_async_context(
            serving(redis_url, record=paths[2], record_on=False)
        )
        assert await is_on(later)
        await asked(later)
        await connect(redis_url).delete(RECORDING)  # Redis has lost its data
        await until(lambda: connect(redis_url).exists(RECORDING), "a router writing it again")
        assert await is_on(one)
        await other.request("PATCH", "/recording", data=b'{"on": null}')
        await until(lambda: is_on(one, False), "the settings deciding again")
        await asked(one)
    found = [read(path) for path in paths]
    assert [len(records) for _, records in found] == [1, 1, 1]
    assert len({header.secret for header, _ in found}) == 1
    assert len({records[0].keys for _, records in found}) == 1
    assert len({header.router for header, _ in found}) == 3


async def test_what_cannot_be_switched_says_why(redis_url: str, tmp_path: Path) -> None:
    async with Replica(redis_url, "r"), serving(redis_url) as router:
        assert (await router.get("/recording")).json == {"on": False, "changed": None, "files": []}
        answer = await router.request("PATCH", "/recording", data=b'{"on": true}')
        assert answer.status == 409
        assert "no file to record to: set `record`" in answer.json["error"]["message"]
        for body in (b"", b"on", b'{"on": 1}', b'{"of": true}', b'{"on": "\xff"}'):
            answer = await router.request("PATCH", "/recording", data=body)
            assert answer.status == 400, body
            assert 'the body must be {"on": true}' in answer.json["error"]["message"]


async def test_recordings_are_fetched_from_the_router_while_they_grow(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    async with (
        Replica(redis_url, "r"),
        serving(redis_url, record=file, record_file_bytes=64 * 1024) as router,
    ):
        for number in range(9):  # of 10 kB each
            assert (
                await router.post("/v1/completions", completion(f"{number}" + TEXT * 180))
            ).status == 200
        await until(lambda: (tmp_path / "requests.jsonl.1").exists(), "a second file")

        async def all_written() -> bool:
            return await router.metric("pando_router_recorded_requests_total") == 9

        await until(all_written, "all being written")
        listed = (await router.get("/recording")).json["files"]
        assert [one["size"] for one in listed] == [
            (tmp_path / name).stat().st_size for name in ("requests.jsonl.1", "requests.jsonl")
        ]
        for one, name in zip(listed, ("requests.jsonl.1", "requests.jsonl"), strict=True):
            got = await router.get(f"/recording/files/{one['file']}")
            assert got.body == (tmp_path / name).read_bytes()
            assert msgspec.json.decode(got.body.splitlines()[0], type=Header).file == one["file"]
        for wrong in ("requests.jsonl", "..%2f..%2fetc%2fpasswd", "x"):
            assert (await router.get(f"/recording/files/{wrong}")).status == 404


@pytest.mark.e2e
async def test_several_processes_write_a_file_each_behind_one_secret(
    valkey_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    async with (
        Replica(valkey_url, "a"),
        router_process(valkey_url, processes=2, record=str(file)) as (parent, router),
    ):
        files = [tmp_path / f"requests-{number}.jsonl" for number in range(2)]
        sent = 0

        async def both_wrote() -> bool:  # connections are spread by the kernel
            nonlocal sent
            sent += 1
            assert (await router.post("/v1/completions", completion(TEXT))).status == 200
            return all(path.exists() for path in files)

        await until(both_wrote, "both processes having written")
        parent.terminate()
        assert await parent.wait() == 0
    records = [record for path in files for record in read(path)[1]]
    assert len(records) == sent
    assert len(Counter(record.keys for record in records)) == 1
    assert not file.exists()


def test_a_recording_where_nothing_can_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="not a writable folder"):
        RouterSettings(record=tmp_path / "nowhere" / "requests.jsonl")
    with pytest.raises(ValidationError, match="is a folder, not a file"):
        RouterSettings(record=tmp_path)
