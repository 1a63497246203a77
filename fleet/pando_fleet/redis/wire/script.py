"""A Lua script on the hot path: run by its digest, and loaded if the server does not know it."""

import asyncio
from collections.abc import Iterable
from hashlib import sha1
from typing import Any, Generic

from msgspec.structs import astuple

from pando_fleet.redis.layout.calls import Call
from pando_fleet.redis.layout.lua import key_count, source_of
from pando_fleet.redis.wire.call import Answer, Line, Reply, pack
from pando_fleet.redis.wire.wire import answer_to


class WireScript(Generic[Call]):
    """The script must be idempotent, since it may run twice."""

    def __init__(self, wire: Line, call: type[Call]) -> None:
        text = source_of(call)
        self._wire = wire
        self._keys = key_count(call)
        self._digest = sha1(text.encode(), usedforsecurity=False).hexdigest()  # Redis's name for it
        self._load = pack("SCRIPT", "LOAD", text)

    async def __call__(self, call: Call, *more: str | bytes | int | float) -> Any:
        """Raises FleetUnavailable, FleetError."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.send(call, more, answer_to(reply))
        return await reply

    def send(self, call: Call, more: Iterable[str | bytes | int | float], answer: Answer) -> None:
        """Like `Wire.send`, on the server that holds the call's keys, all of one slot."""
        fields = astuple(call)
        packed = pack("EVALSHA", self._digest, self._keys, *fields, *more)
        self._wire.send(fields[0], packed, answer, self._load)
