"""Waits that a single timer ends, checked with the event loop's clock."""

import asyncio
from typing import Any

import pytest

from pando_fleet.patience import Patience
from tests.waiting import PATIENCE_S

LIMIT_S = 0.05


def test_each_wait_ends_after_its_own_time_and_those_that_are_done_keep_their_result() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        patience = Patience(LIMIT_S)
        lasted: list[float] = []

        async def wait(future: asyncio.Future[str], started: float) -> None:
            with pytest.raises(TimeoutError):
                await future
            lasted.append(loop.time() - started)

        in_time: asyncio.Future[str] = loop.create_future()
        patience.bound(in_time)
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for number in range(5):
                if number == 2:
                    in_time.set_result("here")
                late: asyncio.Future[str] = loop.create_future()
                started = loop.time()
                patience.bound(late)
                group.create_task(wait(late, started))
                await asyncio.sleep(LIMIT_S / 5)
        assert await in_time == "here"
        assert len(lasted) == 5
        assert all(seconds >= LIMIT_S * 0.9 for seconds in lasted)
        assert max(lasted) < 100 * LIMIT_S

    asyncio.run(story())


def test_many_waits_take_one_timer_and_are_forgotten_once_they_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        timers: list[float] = []
        call_at = loop.call_at

        def counted(when: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            timers.append(when)
            return call_at(when, *args, **kwargs)

        monkeypatch.setattr(loop, "call_at", counted)
        patience = Patience(3600.0)
        for _ in range(1000):
            future: asyncio.Future[None] = loop.create_future()
            patience.bound(future)
            future.set_result(None)
        assert len(timers) == 1
        assert len(patience) <= 1

    asyncio.run(story())
