"""Faults in words: `die:replica-1@600`, with the time in seconds of the simulation.

die:NAME@AT            the replica is gone, with its cache and all that runs there
join:NAME@AT           a new replica is started, and ready after the start time
slow:NAME:FACTOR@AT    its steps take so many times as long from then on; 1 ends it
redis:SECONDS@AT       Redis answers nobody for so long, and comes back as it was
redis-lost:SECONDS@AT  and comes back empty
clock:ROUTER:SECONDS@AT  the clock of a router, by its number from 0, is set so far ahead
"""

import math
from collections.abc import Awaitable, Callable
from functools import partial

from pando_sim.fleet.interfaces import Fault, FleetControl

FORMS = (
    "die:NAME@AT, join:NAME@AT, slow:NAME:FACTOR@AT, redis:SECONDS@AT, redis-lost:SECONDS@AT,"
    " clock:ROUTER:SECONDS@AT"
)

_Act = Callable[[FleetControl], Awaitable[None]]


class FaultError(Exception):
    """A fault cannot be read; the message is one line."""


def parse_fault(text: str) -> Fault:
    """Raises FaultError."""
    what, _, at = text.rpartition("@")
    kind, *rest = what.split(":")
    try:
        at_s = _number(at)
        match kind, rest:
            case "die", [name] if name:
                return Fault(at_s, f"{name} dies", partial(_die, name))
            case "join", [name] if name:
                return Fault(at_s, f"{name} is started", partial(_join, name))
            case "slow", [name, factor] if name and (by := _number(factor)) > 0:
                return Fault(at_s, f"{name} takes {by:g} times as long", partial(_slow, name, by))
            case (("redis" | "redis-lost"), [seconds]):
                lasts_s, empty = _number(seconds), kind == "redis-lost"
                said = f"Redis is away for {lasts_s:g} s{', and comes back empty' if empty else ''}"
                return Fault(at_s, said, partial(_away, lasts_s, empty))
            case "clock", [router, seconds] if router.isdigit():
                by_s = float(seconds)
                said = f"the clock of router {router} is set {by_s:g} s ahead"
                return Fault(at_s, said, partial(_shift, int(router), by_s))
    except ValueError:
        pass
    raise FaultError(f"--fault {text!r}: is none of {FORMS}")


def _number(text: str) -> float:
    """Not below 0. Raises ValueError."""
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


def _exists(fleet: FleetControl, name: str) -> bool:
    """A replica that scaling took away meanwhile can neither die nor be slow."""
    return any(one.name == name for one in fleet.replicas())


async def _die(name: str, fleet: FleetControl) -> None:
    if _exists(fleet, name):
        fleet.stop(name, leaves=False)  # it tells nobody


async def _join(name: str, fleet: FleetControl) -> None:
    if not _exists(fleet, name):
        fleet.start(name)


async def _slow(name: str, factor: float, fleet: FleetControl) -> None:
    if _exists(fleet, name):
        fleet.slow_down(name, factor)


async def _away(seconds: float, empty: bool, fleet: FleetControl) -> None:
    async def back(fleet: FleetControl) -> None:
        await fleet.regain_redis(empty=empty)

    fleet.lose_redis()
    fleet.at(fleet.now_s + seconds, back)


async def _shift(router: int, by_s: float, fleet: FleetControl) -> None:
    fleet.shift_clock(router, by_s)
