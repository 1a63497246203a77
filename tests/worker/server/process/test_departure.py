"""A worker that is shut down waits for the hand-off of its cache, but not longer."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from pando_fleet.records.marks import MarkKind, Marks, MarkState
from pando_fleet.redis.client import connect
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import ReplicaState
from pando_worker.server.process import departure
from pando_worker.server.process.departure import handed_off
from tests.worker.server.process.worker_process import WorkerProcess, until

FOR_EVER_MS = 3_600_000


@pytest.fixture
async def marks(valkey_url: str) -> AsyncIterator[Marks]:
    redis = connect(valkey_url)
    yield Marks(redis, "p")
    await redis.aclose()


async def hand_off(marks: Marks) -> None:
    """Like the operator when it sees that the pod ends."""
    await marks.set(MarkKind.HAND_OFF, "one", lasts_ms=FOR_EVER_MS, budget_tokens=10)
    await marks.set(MarkKind.DRAIN, "one", lasts_ms=FOR_EVER_MS)


async def done(marks: Marks) -> None:
    """Like a router."""
    (mark,) = [mark for mark in await marks.all() if mark.kind is MarkKind.HAND_OFF]
    claimed = await marks.claim(mark, "router")
    assert claimed is not None
    assert await marks.report(claimed, state=MarkState.DONE)


async def is_waiting(task: "asyncio.Task[None]") -> bool:
    return not (await asyncio.wait([task], timeout=3 * departure.POLL_S))[0]


async def test_an_open_hand_off_is_waited_for_until_it_is_over(
    marks: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "NOTICE_S", 0.0)
    await hand_off(marks)
    task = asyncio.create_task(handed_off(marks, "one"))
    assert await is_waiting(task)
    await done(marks)
    await task


async def test_a_drain_mark_alone_says_that_there_will_be_none(
    marks: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "NOTICE_S", 600.0)
    await marks.set(MarkKind.DRAIN, "another", lasts_ms=FOR_EVER_MS)
    task = asyncio.create_task(handed_off(marks, "one"))
    assert await is_waiting(task)
    await marks.set(MarkKind.DRAIN, "one", lasts_ms=FOR_EVER_MS)
    await task


async def test_without_an_operator_nobody_is_waited_for(
    marks: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "NOTICE_S", 0.1)
    await handed_off(marks, "one")


async def test_without_redis_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "NOTICE_S", 600.0)
    redis = connect("redis://127.0.0.1:1")
    await handed_off(Marks(redis, "p"), "one")
    await redis.aclose()


@pytest.mark.e2e
async def test_a_worker_keeps_its_place_in_the_fleet_while_it_hands_off(
    marks: Marks, valkey_url: str
) -> None:
    redis = connect(valkey_url)
    registry = Registry(redis)

    async def is_draining() -> bool:
        return [one.beat.state for one in await registry.replicas("p")] == [ReplicaState.DRAINING]

    with WorkerProcess.start(
        redis=valkey_url, pool="p", replica="one", hand_off_seconds=600
    ) as worker:
        await hand_off(marks)
        worker.signal(signal.SIGTERM)
        await until(is_draining)
        exit_code = asyncio.create_task(worker.exit_code())
        await asyncio.wait([exit_code], timeout=1.0)
        assert not exit_code.done()
        assert await is_draining()
        await done(marks)
        assert await exit_code == 0
    assert await registry.replicas("p") == []
    await redis.aclose()


@pytest.mark.e2e
@pytest.mark.parametrize("seconds", [0, 0.5])
async def test_a_worker_stays_for_no_longer_than_it_is_set_to(
    marks: Marks, valkey_url: str, seconds: float
) -> None:
    await hand_off(marks)
    with WorkerProcess.start(
        redis=valkey_url, pool="p", replica="one", hand_off_seconds=seconds
    ) as worker:
        worker.signal(signal.SIGTERM)
        assert await worker.exit_code() == 0


@pytest.mark.e2e
async def test_a_second_signal_does_not_wait_for_a_hand_off(marks: Marks, valkey_url: str) -> None:
    await hand_off(marks)
    with WorkerProcess.start(
        redis=valkey_url, pool="p", replica="one", hand_off_seconds=600
    ) as worker:
        worker.signal(signal.SIGTERM)
        await asyncio.to_thread(worker.logged, "draining")
        worker.signal(signal.SIGINT)
        assert await worker.exit_code() == 0
