"""Lua scripts of this package: loaded once, run by their digest in one round trip."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from pando_fleet.client import RedisClient, fleet_errors

Clock = Callable[[], int]
"""Milliseconds now, in place of Redis's own TIME; simulations and tests give one."""


def source_of(parts: Sequence[str]) -> str:
    """The Lua files of `parts`, joined: libraries of local functions first, the script last."""
    folder = files(__package__) / "lua"
    return "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)


class Script:
    """The Lua files of `parts`, joined, through redis-py; `wire.WireScript` is for hot paths."""

    def __init__(self, redis: RedisClient, *parts: str) -> None:
        self._run = redis.register_script(source_of(parts))

    async def __call__(self, keys: Sequence[str], *args: str | bytes | float) -> Any:
        """Runs by EVALSHA, and loads the script first where the server does not know it.

        Raises FleetUnavailable, FleetError.
        """
        with fleet_errors():
            return await self._run(keys=keys, args=args)


def time_arg(clock: Clock | None) -> int | str:
    """The first argument of scripts that need the time: '' lets them ask Redis."""
    return "" if clock is None else clock()
