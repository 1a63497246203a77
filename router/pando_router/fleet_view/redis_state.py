"""How Redis serves each pool: up, full, read-only or away.

In a Redis Cluster each pool is on one server, so one pool's may be away while the others answer.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic
from typing import Any

from pando_fleet.redis.client import FleetFull, FleetReadOnly
from pando_router.fleet_view.calm import Calm
from pando_router.telemetry.bounded_log import BoundedLog

logger = logging.getLogger("pando.router")


class RedisState(StrEnum):
    UP = "up"
    FULL = "full"  # out of memory: leases and heartbeats are written, but trees do not grow
    READ_ONLY = "read_only"  # answers, but refuses writes, heartbeats and leases among them
    AWAY = "away"


_WORST_FIRST = (RedisState.AWAY, RedisState.READ_ONLY, RedisState.FULL, RedisState.UP)


@dataclass(slots=True)
class _Service:
    """One pool's state."""

    state: RedisState = RedisState.AWAY
    error: str = ""  # the last one
    fell_to: RedisState | None = None  # the state of the last failure since the last report
    reported: RedisState | None = None
    calm: Calm = field(default_factory=Calm)


class RedisStates:
    """The states by pool, AWAY until its server has answered; `report` logs changes."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._services: dict[str, _Service] = {}
        self._has_reported = False
        self._full = BoundedLog("redis is full")
        self._read_only = BoundedLog("redis refuses writes")
        self._writable = BoundedLog("redis takes writes again", logging.INFO)

    def of(self, pool: str) -> RedisState:
        service = self._services.get(pool)
        return RedisState.AWAY if service is None else service.state

    @property
    def worst(self) -> RedisState:
        """The worst state of all pools."""
        states = self._states()
        return next((state for state in _WORST_FIRST if state in states), RedisState.AWAY)

    def any_answers(self, pools: Collection[str]) -> bool:
        return any(self.of(pool) is not RedisState.AWAY for pool in pools)

    @property
    def row(self) -> dict[str, Any]:
        """For /healthz and /fleet: the worst state; if states differ, also all that are not UP."""
        row: dict[str, Any] = {"redis": self.worst.value}
        if len(self._states()) > 1:
            row["redis_by_pool"] = {
                pool: service.state.value
                for pool, service in self._services.items()
                if service.state is not RedisState.UP
            }
        return row

    def works(self, pool: str) -> None:
        """The pool's server answered in time, and takes writes."""
        service = self._services.setdefault(pool, _Service())
        if service.calm.answered(self._clock()):
            service.state = RedisState.UP

    def failed(self, pool: str, error: Exception) -> None:
        """The pool's server did not answer in time, or refused a write."""
        service = self._services.setdefault(pool, _Service())
        match error:
            case FleetFull():
                service.state = RedisState.FULL
            case FleetReadOnly():
                service.state = RedisState.READ_ONLY
            case _:
                service.state = RedisState.AWAY
                service.calm.failed(self._clock())
        service.fell_to = service.state
        service.error = str(error) or "no answer in time"

    def keep_only(self, pools: Collection[str]) -> None:
        """Drops all other pools."""
        for gone in self._services.keys() - set(pools):
            del self._services[gone]

    def report(self) -> None:
        """Logs changes since the last report: one line per state with all of its pools."""
        for service in self._services.values():
            if service.reported is None and self._has_reported:
                service.reported = RedisState.UP  # a new pool in a known Redis
        self._log((pool, service.fell_to) for pool, service in self._services.items())
        self._log((pool, service.state) for pool, service in self._services.items())
        for service in self._services.values():
            service.fell_to = None
        self._has_reported = bool(self._services)

    def _log(self, states: Iterable[tuple[str, RedisState | None]]) -> None:
        changed: dict[tuple[RedisState, bool], list[str]] = {}
        for pool, state in sorted(states):
            service = self._services[pool]
            if state is not None and state is not service.reported:
                was_away = service.reported in (None, RedisState.AWAY)
                changed.setdefault((state, was_away), []).append(pool)
                service.reported = state
        for (state, was_away), pools in changed.items():
            error = self._services[pools[0]].error
            match state:
                case RedisState.AWAY:
                    logger.warning("redis is away", extra={"pools": pools, "error": error})
                case RedisState.READ_ONLY:
                    self._read_only(pools=pools, error=error)
                case RedisState.FULL:
                    self._full(pools=pools, error=error)
                case RedisState.UP if was_away:
                    logger.info("redis answers", extra={"pools": pools})
                case RedisState.UP:
                    self._writable(pools=pools)

    def _states(self) -> set[RedisState]:
        return {service.state for service in self._services.values()}
