"""A Lua script on the hot path: run by its digest, loaded where the server does not know it."""

import asyncio
from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from pando_fleet.scripts import source_of
from pando_fleet.wire.call import Answer, Line, Reply, pack
from pando_fleet.wire.wire import answer_to


class WireScript:
    """The Lua files of `parts`, joined; it must have the effect of once when it runs twice."""

    def __init__(self, wire: Line, *parts: str) -> None:
        source = source_of(parts)
        self._wire = wire
        self._digest = sha1(source.encode(), usedforsecurity=False).hexdigest()  # Redis's name
        self._load = pack("SCRIPT", "LOAD", source)

    async def __call__(self, keys: Sequence[str], *args: str | bytes | int | float) -> Any:
        """Raises FleetUnavailable, FleetError."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.send(keys, args, answer_to(reply))
        return await reply

    def send(
        self, keys: Sequence[str], args: Sequence[str | bytes | int | float], answer: Answer
    ) -> None:
        """As `Wire.send`, on the server that holds `keys`, all of one slot."""
        packed = pack("EVALSHA", self._digest, len(keys), *keys, *args)
        self._wire.send(keys[0], packed, answer, self._load)
