"""Runs work in its own fleet, which ends with the work, at a signal, or when a part fails."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from pando.up.download import downloaded
from pando.up.plan import UpPlan, check
from pando.up.process import Relay
from pando.up.signals import EndSignals

if TYPE_CHECKING:
    from pando.up.fleet import Fleet

log = logging.getLogger("pando.up")

Result = TypeVar("Result")


async def in_fleet(
    plan: UpPlan, relay: Relay, work: Callable[["Fleet"], Awaitable[Result]], signals: EndSignals
) -> Result | None:
    """Returns the result of `work`, or None if a signal ended it. Leaves no process behind.

    The first signal ends the fleet in order, the second one at once. After an earlier signal, such
    as during the check of the plan, the fleet does not start.

    Raises:
        UpPlanError, SettingsError: the fleet was not started.
        PartError: a part ended before it was ready.
    """
    await check(plan)
    await downloaded(plan, signals)
    if signals.count:
        return None
    # Imported here, as a plan with a mistake needs none of it.
    from pando.up.fleet import Fleet

    fleet = Fleet(plan, relay)
    signalled = asyncio.Event()

    def heard() -> None:
        if not signalled.is_set():
            log.info("stopping; a second signal stops all at once")
            signalled.set()
        if signals.count > 1:
            fleet.kill()

    with signals.heard_by(heard):
        return await _work_in(fleet, work, signalled)


async def _work_in(
    fleet: "Fleet", work: Callable[["Fleet"], Awaitable[Result]], signalled: asyncio.Event
) -> Result | None:
    async with fleet:
        working = asyncio.ensure_future(work(fleet))
        others = [asyncio.create_task(signalled.wait()), asyncio.create_task(fleet.watch())]
        try:
            ended, _ = await asyncio.wait([working, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, *others):
                task.cancel()
            await asyncio.gather(working, *others, return_exceptions=True)
        for task in ended:
            task.result()  # raises the error that ended it
        return None if working.cancelled() else working.result()
