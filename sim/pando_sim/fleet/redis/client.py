"""`LineRedis`: redis-py's interface on the run's line, for code that is given a client.

Its commands block: in virtual time nothing else can happen while an answer is awaited, and redis-py
takes several times as long for a command as Redis does.
"""

from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from redis.asyncio import Redis

from pando_fleet.redis.wire.call import pack
from pando_sim.fleet.redis.line import BlockingLine

NOBODY = "/nonexistent/pando-sim/redis.sock"


class LineRedis(Redis):
    """Single commands and scripts; it has no connection of its own, so pipelines fail. Replies are
    Redis's own. While the line is away everything raises FleetUnavailable."""

    def __init__(self, line: BlockingLine) -> None:
        super().__init__(unix_socket_path=NOBODY)
        self._line = line

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        name, *rest = args
        return await self._line.ask(pack(*name.split(), *rest))

    def register_script(self, script: Any) -> Any:
        return _LineScript(self._line, script)


class _LineScript:
    """Like redis-py's script."""

    def __init__(self, line: BlockingLine, text: str) -> None:
        self._line = line
        self._digest = sha1(text.encode(), usedforsecurity=False).hexdigest()  # Redis's name for it
        self._load = pack("SCRIPT", "LOAD", text)

    async def __call__(self, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        packed = pack("EVALSHA", self._digest, len(keys), *keys, *args)
        return await self._line.ask(packed, self._load)
