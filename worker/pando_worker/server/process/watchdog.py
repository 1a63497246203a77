"""Detects a stalled engine: a working one sends events twice a second and announces longer pauses.

If nothing arrives for STALL_S beyond an announced pause, the engine is stalled: the worker accepts
no requests until the next event. After `watchdog_seconds` of silence the worker ends.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

STALL_S = 5.0

TICK_S = 0.25

COMPUTES = 0.02
"""An engine on the CPU that uses more than this share of a core is working, if perhaps starved."""

COMPUTING = 0.1
"""Weight of silence while the engine is working, so that one that spins for ever also ends."""


class Engine(Protocol):
    @property
    def events_heard(self) -> int:
        """Events that the engine has sent; only grows."""

    @property
    def announced_s(self) -> float:
        """Seconds of silence that its last event announced."""

    def judge(self, silent_s: float, *, is_stalled: bool) -> None:
        """Called on each tick with the length of the current silence."""


async def watch(
    engine: Engine, limit_s: float, computed_s: Callable[[], float] | None = None
) -> float:
    """Watches the engine until it has been silent for `limit_s` seconds beyond an announced pause;
    returns the length of the silence in seconds.

    Silence is counted in this process's own ticks. So if the whole worker was suspended, the
    engine's pending events are read before it is judged.

    Args:
        computed_s: CPU time of an engine that computes on the CPU, in seconds.
    """
    tick_s = min(TICK_S, limit_s / 20)
    heard, silent_s, counted_s, at_work_s = engine.events_heard, 0.0, 0.0, 0.0
    while True:
        await asyncio.sleep(tick_s)
        if engine.events_heard != heard:
            heard, silent_s, counted_s = engine.events_heard, 0.0, 0.0
        else:
            before_s, at_work_s = at_work_s, computed_s() if computed_s else 0.0
            is_at_work = at_work_s - before_s > COMPUTES * tick_s
            silent_s += tick_s
            counted_s += COMPUTING * tick_s if is_at_work else tick_s
        beyond_s = counted_s - engine.announced_s
        engine.judge(silent_s, is_stalled=beyond_s >= STALL_S)
        if beyond_s >= limit_s:
            return silent_s


def cpu_s(pid: int) -> float:
    """CPU time of a local process in seconds, read from its Linux CPU clock; 0 if it has none."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED of a process
    except OSError:
        return 0.0
