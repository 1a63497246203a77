"""Work done in a fleet of its own, which ends with the work, at a signal, or when a part fails."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pando.up.fleet import Fleet
from pando.up.plan import Plan, check
from pando.up.process import Relay

log = logging.getLogger("pando.up")

Result = TypeVar("Result")

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def in_fleet(
    plan: Plan, relay: Relay, work: Callable[[Fleet], Awaitable[Result]]
) -> Result | None:
    """What `work` returns; None when a signal ended it. No process is left afterwards.

    The first signal ends the fleet in order, the second one at once.

    Raises:
        PlanError, SettingsError: the fleet was not started.
        PartError: a part ended before it was ready.
    """
    await check(plan)
    fleet = Fleet(plan, relay)
    signalled = _handle_signals(fleet)
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
            task.result()  # raises what made it end
        return None if working.cancelled() else working.result()


def _handle_signals(fleet: Fleet) -> asyncio.Event:
    """From now on the first signal sets the event, and each further one kills the fleet."""
    signalled = asyncio.Event()

    def handle() -> None:
        if signalled.is_set():
            fleet.kill()
        else:
            log.info("ending; a second signal ends all at once")
            signalled.set()

    for number in END_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, handle)
    return signalled
