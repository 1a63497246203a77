"""Parses faults such as `die:replica-1@600`; times are seconds of the simulation.

die:NAME@AT              the replica dies, with its cache and its requests
join:NAME@AT             a new replica starts; it is ready after the start time
slow:NAME:FACTOR@AT      the replica's steps take FACTOR times as long; 1 ends this
redis:SECONDS@AT         Redis does not answer for SECONDS; it keeps its data
redis-lost:SECONDS@AT    the same, but Redis loses its data
clock:ROUTER:SECONDS@AT  the clock of a router, by its number from 0, jumps SECONDS ahead
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pando_sim.fleet.fault import Fault

if TYPE_CHECKING:
    from pando_sim.fleet.control import FleetControl

FORMS = (
    "die:NAME@AT, join:NAME@AT, slow:NAME:FACTOR@AT, redis:SECONDS@AT, redis-lost:SECONDS@AT,"
    " clock:ROUTER:SECONDS@AT"
)


@dataclass(frozen=True, slots=True)
class Stage:
    """The run in which faults happen."""

    replicas: int  # replica-0 and so on
    is_scaled: bool  # so there may be more replicas at times
    routers: int
    last_s: float  # arrival of the last request


class FaultError(Exception):
    """A fault cannot be parsed, or cannot happen; the message is one line."""


def parse_fault(text: str) -> Fault:
    """Raises FaultError."""
    kind, rest, at = _words(text)
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
                loss = ", and comes back empty" if empty else ""
                what = f"Redis is away for {lasts_s:g} s{loss}"
                return Fault(at_s, what, partial(_away, lasts_s, empty))
            case "clock", [router, seconds] if router.isdigit():
                by_s = _finite(seconds)
                what = f"the clock of router {router} is set {by_s:g} s ahead"
                return Fault(at_s, what, partial(_shift, int(router), by_s))
    except ValueError:
        pass
    raise FaultError(f"--fault {text!r}: must be one of {FORMS}")


def check_faults(texts: Sequence[str], stage: Stage) -> None:
    """Refuses faults that cannot happen. Raises FaultError."""
    every = [(text, *_words(text)) for text in texts]
    joined = {rest[0] for _, kind, rest, _ in every if kind == "join"}
    for text, kind, rest, at in every:
        if float(at) > stage.last_s:
            raise FaultError(
                f"--fault {text!r}: is after the last request, which arrives at {stage.last_s:g} s"
            )
        if kind in ("die", "slow") and rest[0] not in joined and not _may_be(rest[0], stage):
            last = stage.replicas - 1
            raise FaultError(
                f"--fault {text!r}: there is no replica {rest[0]!r}, only replica-0 to"
                f" replica-{last} and those that --fault join:NAME@AT adds"
            )
        if kind == "clock" and int(rest[0]) >= stage.routers:
            raise FaultError(
                f"--fault {text!r}: there is no router {rest[0]}: with --routers"
                f" {stage.routers} the last is {stage.routers - 1}"
            )


def _words(text: str) -> tuple[str, list[str], str]:
    """Splits a fault into its kind, its values and its time."""
    what, _, at = text.rpartition("@")
    kind, *rest = what.split(":")
    return kind, rest, at


def _may_be(name: str, stage: Stage) -> bool:
    number = re.fullmatch(r"replica-(\d+)", name)
    return number is not None and (stage.is_scaled or int(number[1]) < stage.replicas)


def _finite(text: str) -> float:
    """Raises ValueError."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _number(text: str) -> float:
    """Not below 0. Raises ValueError."""
    value = _finite(text)
    if value < 0:
        raise ValueError(text)
    return value


_HAPPENED = ""
_GONE = "it does not exist"  # scaling removed it, or it died before


def _exists(fleet: "FleetControl", name: str) -> bool:
    return any(one.name == name for one in fleet.replicas())


async def _die(name: str, fleet: "FleetControl") -> str:
    if not _exists(fleet, name):
        return _GONE
    fleet.stop(name, leaves=False)  # without notice
    return _HAPPENED


async def _join(name: str, fleet: "FleetControl") -> str:
    if _exists(fleet, name):
        return "it already exists"
    fleet.start(name)
    return _HAPPENED


async def _slow(name: str, factor: float, fleet: "FleetControl") -> str:
    if not _exists(fleet, name):
        return _GONE
    fleet.slow_down(name, factor)
    return _HAPPENED


async def _away(seconds: float, empty: bool, fleet: "FleetControl") -> str:
    async def back(fleet: "FleetControl") -> None:
        await fleet.regain_redis(empty=empty)

    fleet.lose_redis()
    fleet.at(fleet.now_s + seconds, back)
    return _HAPPENED


async def _shift(router: int, by_s: float, fleet: "FleetControl") -> str:
    fleet.shift_clock(router, by_s)
    return _HAPPENED
