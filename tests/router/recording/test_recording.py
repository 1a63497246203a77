"""What a real router records of its requests, and what it does not."""

import asyncio
import shutil
import stat
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError

from pando_fleet.placement.prefix import KEY_BYTES, chunk_keys, seed
from pando_router.configuration.settings import RouterSettings
from pando_router.recording import recorder
from pando_router.recording.form import HIDDEN_BYTES, Header, Outcome, Record
from tests.router.process.router_process import router_process
from tests.router.world import (
    Handler,
    Replica,
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


def read(path: Path) -> tuple[Header, list[Record]]:
    first, *rest = path.read_bytes().splitlines()
    return (
        msgspec.json.decode(first, type=Header),
        [msgspec.json.decode(line, type=Record) for line in rest],
    )


def hidden(record: Record) -> list[bytes]:
    size = HIDDEN_BYTES
    return [record.keys[start : start + size] for start in range(0, len(record.keys), size)]


async def test_a_request_is_recorded_with_its_lengths_times_and_outcome(
    redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
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
    assert header.started <= record.at <= record.oldest
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
    for secret, file in zip(secrets, files, strict=True):
        recording = serving(redis_url, record=file, record_secret=secret)
        async with Replica(redis_url, file.stem), recording as router:
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


async def test_what_has_no_room_to_wait_is_dropped_and_counted(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_WAITING", 3 * recorder.RECORD_BYTES)
    monkeypatch.setattr(recorder, "EVERY_S", 3600.0)  # nothing is written until the end
    file = tmp_path / "requests.jsonl"
    async with Replica(redis_url, "r"), serving(redis_url, record=file) as router:
        for _ in range(5):
            await router.post("/v1/completions", completion("short"))
        assert await router.metric("pando_router_unrecorded_requests_total") == 2
    assert len(read(file)[1]) == 3


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
