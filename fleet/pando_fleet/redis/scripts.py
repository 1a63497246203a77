"""Runs this package's Lua scripts through redis-py; `wire.WireScript` is for hot paths."""

from collections.abc import Callable, Sequence
from typing import Any, Generic

from msgspec.structs import astuple
from redis.exceptions import NoScriptError

from pando_fleet.redis.client import RedisClient, fleet_errors
from pando_fleet.redis.layout.calls import Call
from pando_fleet.redis.layout.lua import key_count, source_of

Clock = Callable[[], int]
"""Milliseconds now, instead of Redis's own TIME; simulations and tests pass one."""


class Script(Generic[Call]):
    """A script that is loaded once and run by its digest in one round trip."""

    def __init__(self, redis: RedisClient, call: type[Call]) -> None:
        self._run = redis.register_script(source_of(call))
        self._keys = key_count(call)

    async def __call__(
        self, call: Call, *more: str | bytes | float, more_keys: Sequence[str] = ()
    ) -> Any:
        """Runs by EVALSHA; loads the script first if the server does not know it.

        Raises FleetUnavailable, FleetError.
        """
        fields = astuple(call)
        keys, args = (*fields[: self._keys], *more_keys), (*fields[self._keys :], *more)
        with fleet_errors():
            try:
                return await self._run(keys=keys, args=args)
            except NoScriptError:  # it was loaded at a server that turned out to be the wrong one
                return await self._run(keys=keys, args=args)


def time_arg(clock: Clock | None) -> int | str:
    """A call's `now`: '' makes the script ask Redis."""
    return "" if clock is None else clock()
