"""A pool's queue: requests get places in turn, and no place is lost, whichever request leaves."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pando_fleet.current import Current
from pando_router.admission.pool_queue import PoolQueue, Waiting
from pando_router.core import bounded_queue
from pando_router.core.bounded_queue import (
    BoundedQueue,
    LeaveReason,
    QueueLimits,
    is_for_us,
    pause_s,
)
from pando_router.core.fair_queue import Entry
from pando_router.core.route import Shortage
from pando_router.errors import ApiError, unavailable
from tests.router.world import until
from tests.waiting import PATIENCE_S


class Bench:
    """A number of places, given out one per call as by a pool's replicas."""

    def __init__(self, places: int = 0, requests: int = 100, body_bytes: int = 10**6) -> None:
        self.free = places
        self.shortage = Shortage.FULL
        self.calls = 0
        self.at_once = 0
        self.begun = asyncio.Event()
        self.most_at_once = 0
        self.given: list[str] = []
        self.leaver: asyncio.Task[str] | None = None  # leaves at the moment of a failure
        self.ends: list[LeaveReason] = []
        self.queue: PoolQueue[str, str] = PoolQueue(
            "p",
            Current(QueueLimits(requests, body_bytes)),
            self.place,
            self.give_back,
            self.ends.append,
            random.Random(0),
        )

    async def place(self, name: str) -> str | Shortage:
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.begun.set()
        shortage = None if self.free or name == "poison" else self.shortage
        await asyncio.sleep(0)  # the answer is under way
        self.at_once -= 1
        if name == "poison":
            if self.leaver is not None:
                self.leaver.cancel()
            raise ValueError(name)
        if shortage is not None:
            return shortage
        self.free -= 1
        self.given.append(name)
        return name

    def give_back(self, name: str) -> None:
        self.given.remove(name)
        self.free += 1
        self.queue.wake()

    async def wait(
        self, name: str, timeout_s: float = 60.0, body_bytes: int = 1, tenant: str = "t"
    ) -> str:
        entry = Entry(item=Waiting[str, str](name), tenant=tenant, body_bytes=body_bytes)
        return await self.queue.wait(entry, self.shortage, timeout_s, late)

    def enqueue(self, *names: str, **options: float) -> list["asyncio.Task[str]"]:
        return [asyncio.create_task(self.wait(name, **options)) for name in names]  # type: ignore[arg-type]

    def free_one(self) -> None:
        self.free += 1
        self.queue.wake()


def late(retry_after: int) -> ApiError:
    return unavailable("late", "queue_timeout", retry_after=retry_after)


@contextmanager
def no_pace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The queue moves only when it is woken."""
    with monkeypatch.context() as patch:
        patch.setattr(bounded_queue, "PACE_S", 3600.0)
        yield


async def test_a_place_given_back_goes_to_the_next_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    with no_pace(monkeypatch):
        tasks = bench.enqueue("a", "b", "c")
        await until(lambda: bench.calls, "the first try")
        for task, name in zip(tasks, "abc", strict=True):
            bench.free_one()
            assert await task == name
    assert bench.ends == [LeaveReason.PLACED] * 3


async def test_places_freed_by_other_routers_are_noticed_without_a_notification() -> None:
    bench = Bench()
    (task,) = bench.enqueue("a")
    await until(lambda: bench.calls, "the first try")
    bench.free, calls = 1, bench.calls
    assert await asyncio.wait_for(task, PATIENCE_S) == "a"
    assert bench.calls == calls + 1  # by the next look
    rng = random.Random(1)
    pauses = [pause_s(rng) for _ in range(1_000)]
    assert max(pauses) < bounded_queue.LONGEST_PAUSE_S


async def test_one_placement_is_under_way_at_a_time_and_none_while_nobody_waits() -> None:
    bench = Bench()
    tasks = bench.enqueue(*map(str, range(50)))
    await until(lambda: bench.calls > 2, "some tries")
    bench.free = 50
    bench.queue.wake()
    await asyncio.gather(*tasks)
    assert bench.most_at_once == 1
    await until(lambda: len(asyncio.all_tasks()) == 1, "the pump being gone")


async def test_a_request_that_leaves_frees_its_place_in_the_queue() -> None:
    bench = Bench(requests=1)
    (gone,) = bench.enqueue("gone")
    await until(lambda: len(bench.queue.entries), "waiting")
    gone.cancel()
    await asyncio.wait([gone])
    assert len(bench.queue.entries) == 0
    (stays,) = bench.enqueue("stays")
    bench.free_one()
    assert await stays == "stays"
    assert bench.ends == [LeaveReason.CLIENT_LEFT, LeaveReason.PLACED]


@pytest.mark.parametrize("steps", range(6))
async def test_no_place_is_lost_when_its_request_leaves_at_that_moment(steps: int) -> None:
    bench = Bench()
    first, second = bench.enqueue("first", "second")
    await until(lambda: bench.calls, "the first try")
    bench.free_one()
    for _ in range(steps):
        await asyncio.sleep(0)
    first.cancel()
    (done,) = await asyncio.gather(first, return_exceptions=True)
    if done == "first":  # it had its place before it could leave
        bench.give_back("first")
    assert await second == "second"
    assert bench.given == ["second"]
    assert bench.free == 0


async def test_a_request_that_leaves_while_its_placement_fails_has_one_end() -> None:
    bench = Bench(places=1)
    (bench.leaver,) = bench.enqueue("poison")
    with pytest.raises(asyncio.CancelledError):
        await bench.leaver
    assert bench.ends == [LeaveReason.CLIENT_LEFT]
    assert len(bench.queue.entries) == 0


async def test_places_add_up_whichever_request_leaves() -> None:
    rng = random.Random(1)
    bench = Bench(places=3)

    waits = 0

    async def client(number: int) -> None:
        nonlocal waits
        waits += 1
        name = await bench.wait(str(number), timeout_s=rng.uniform(0.0, 0.1))
        try:
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
        finally:
            bench.give_back(name)

    for _ in range(20):
        tasks = [asyncio.create_task(client(number)) for number in range(20)]
        while not all(task.done() for task in tasks):
            rng.choice(tasks).cancel()
            for _ in range(rng.randrange(5)):
                await asyncio.sleep(0)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()):
                assert isinstance(error, ApiError)
        await until(lambda: bench.free == 3, "a place that was being sought given back")
        assert (len(bench.queue.entries), bench.free) == (0, 3)
    assert {LeaveReason.PLACED, LeaveReason.CLIENT_LEFT} <= set(bench.ends)
    assert len(bench.ends) == waits  # each has one end


async def test_a_wait_ends_at_its_deadline_with_a_clear_error() -> None:
    bench = Bench()
    with pytest.raises(ApiError) as caught:
        await bench.wait("a", timeout_s=0.01)
    assert caught.value.code == "queue_timeout"
    assert bench.ends == [LeaveReason.EXPIRED]
    assert len(bench.queue.entries) == 0


async def test_a_full_queue_says_when_to_come_back() -> None:
    bench = Bench(requests=2)
    tasks = bench.enqueue("a", "b")
    await until(lambda: len(bench.queue.entries) == 2, "a full queue")
    with pytest.raises(ApiError) as caught:
        await bench.wait("c")
    assert (caught.value.status, caught.value.code) == (429, "queue_full")
    assert 1 <= int(caught.value.headers["retry-after"]) <= 60
    bench.shortage = Shortage.ASLEEP
    await until(lambda: bench.queue.entries._shortage is Shortage.ASLEEP, "the pool being asleep")
    with pytest.raises(ApiError) as caught:
        await bench.wait("c")
    assert caught.value.status == 503
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_queue_without_places_is_always_full() -> None:
    with pytest.raises(ApiError) as caught:
        await Bench(requests=0).wait("a")
    assert (caught.value.status, caught.value.code) == (429, "queue_full")


async def test_a_full_queue_has_room_for_a_tenant_that_has_less_in_it() -> None:
    bench = Bench(requests=3)
    tasks = bench.enqueue("a", "b", "c")
    await until(lambda: len(bench.queue.entries) == 3, "a full queue")
    polite = asyncio.create_task(bench.wait("polite", tenant="polite"))
    with pytest.raises(ApiError) as caught:
        await tasks[2]
    assert caught.value.status == 429
    bench.free = 3
    bench.queue.wake()
    assert await polite == "polite"
    assert await asyncio.gather(*tasks[:2]) == ["a", "b"]


async def test_bodies_that_wait_are_bounded_in_bytes() -> None:
    bench = Bench(body_bytes=100)
    (task,) = bench.enqueue("a", body_bytes=60)
    await until(lambda: len(bench.queue.entries), "waiting")
    with pytest.raises(ApiError) as caught:
        await bench.wait("b", body_bytes=41)
    assert caught.value.status == 429
    bench.free_one()
    await task
    bench.free_one()
    assert await bench.wait("b", body_bytes=100) == "b"


async def test_a_request_that_cannot_be_placed_fails_alone() -> None:
    bench = Bench(places=1)
    poison, well = bench.enqueue("poison", "well")
    assert await well == "well"
    with pytest.raises(ValueError):
        await poison


async def test_nobody_waits_for_replicas_that_will_not_come() -> None:
    bench = Bench()
    tasks = bench.enqueue("a", "b")
    await until(lambda: bench.calls, "the first try")
    bench.shortage = Shortage.NONE
    for task in tasks:
        with pytest.raises(ApiError) as caught:
            await task
        assert (caught.value.status, caught.value.code) == (503, "no_ready_replica")


async def test_a_session_that_finds_memory_but_no_replica_waits_as_others_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_queue, "CROWD_PACE_S", 0.01)
    bench = Bench()
    bench.shortage = Shortage.CROWDED
    [task] = bench.enqueue("a")
    await until(lambda: bench.queue.entries.waits_for_memory and bench.calls, "the first try")
    bench.shortage = Shortage.FULL
    await until(lambda: bench.calls > 3, "it looks for replicas again and again")
    bench.free = 1
    assert await task == "a"


async def test_a_place_freed_while_a_session_finds_memory_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_queue, "CROWD_PACE_S", 0.01)
    bench = Bench()
    with no_pace(monkeypatch):
        bench.shortage = Shortage.CROWDED
        [task] = bench.enqueue("a")
        await until(lambda: bench.calls and not bench.at_once, "it waits for memory")
        bench.shortage = Shortage.FULL
        bench.begun.clear()
        await bench.begun.wait()
        assert bench.at_once == 1  # and has not its answer, that all replicas are full
        bench.free_one()
        assert await asyncio.wait_for(task, PATIENCE_S) == "a"


async def test_a_freed_place_brings_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_queue, "CROWD_PACE_S", 3600.0)
    bench = Bench()
    bench.shortage = Shortage.CROWDED
    [task] = bench.enqueue("a")
    await until(lambda: bench.calls and not bench.at_once, "it waits for memory")
    for _ in range(50):
        bench.queue.wake()
        await asyncio.sleep(0)
    assert bench.calls == 1
    task.cancel()
    await asyncio.wait([task])


def test_the_queue_sums_tokens_bytes_and_time_of_waiting_requests_however_they_leave() -> None:
    now = 100.0
    waiting: BoundedQueue[None] = BoundedQueue("p", Current(QueueLimits(10, 100)), lambda: now)
    placed, left, refused = entries = [
        Entry(item=None, tenant="t", cost=cost, body_bytes=30) for cost in (1.0, 2.0, 4.0)
    ]
    assert (waiting.tokens, waiting.longest_wait_s) == (0, 0)
    for entry in entries:
        waiting.enter(entry, Shortage.FULL)
        now += 2.0
    assert (waiting.tokens, waiting.longest_wait_s) == (7, 6)
    waiting.take(placed)
    assert (waiting.tokens, waiting.longest_wait_s) == (6, 4)
    waiting.leave(left)
    assert waiting.tokens == 4
    error = waiting.not_placed(refused, Shortage.NONE)
    assert error is not None and error.status == 503
    assert waiting.tokens == 0
    assert waiting.enter(Entry(item=None, tenant="t", body_bytes=100), Shortage.FULL) is None


def test_a_freed_place_goes_to_a_request_that_waits_here_as_often_as_to_the_next_one() -> None:
    rng = random.Random(1)
    assert all(is_for_us(rng, here, 0) for here in range(1, 9) for _ in range(20))
    for here, elsewhere in ((1, 3), (3, 1)):
        ours = sum(is_for_us(rng, here, elsewhere) for _ in range(4_000)) / 4_000
        assert ours == pytest.approx(here / (here + elsewhere), abs=0.03)


async def test_after_a_place_the_next_is_asked_for_at_once_and_after_none_not_before_a_wake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    with no_pace(monkeypatch):
        tasks = bench.enqueue("a", "b", "c")
        await until(lambda: bench.calls, "the first try")
        for _ in range(50):
            await asyncio.sleep(0)
        assert bench.calls == 1
        bench.free = 3
        bench.queue.wake()
        assert await asyncio.gather(*tasks) == ["a", "b", "c"]
