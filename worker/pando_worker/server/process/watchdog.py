"""Judges the engine's silence: a living engine speaks twice a second, and announces longer waits.

A silence of STALL_S beyond what was announced is a stall: the worker takes no requests until the
engine speaks again. One of `watchdog_seconds` ends the worker.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

STALL_S = 5.0

TICK_S = 0.25

COMPUTES = 0.02
"""Share of a core above which an engine on the CPU is at work, be it starved of cores."""

COMPUTING = 0.1
"""What silence counts while the engine is at work: one that spins for ever ends, too."""


class Engine(Protocol):
    @property
    def events_heard(self) -> int:
        """Events that the engine has sent; only grows."""

    @property
    def announced_s(self) -> float:
        """For how long its last event said that it may be silent."""

    def judge(self, silent_s: float, *, is_stalled: bool) -> None:
        """It has been silent for so long now."""


async def watch(
    engine: Engine, limit_s: float, computed_s: Callable[[], float] | None = None
) -> float:
    """Judges the engine until it has been silent for `limit_s` beyond what it announced; returns
    for how long it has said nothing, in seconds.

    Counted in ticks that this process itself lived through: where the whole worker was suspended,
    what the engine has said meanwhile is read before it is blamed.

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
    """CPU time of a process of this machine in seconds, by the clock that Linux has for it; 0 where
    there is none."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED, of a process
    except OSError:
        return 0.0
