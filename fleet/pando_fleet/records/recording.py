"""Whether routers record their requests, and the secret that hides keys in all their recordings.

One row for all routers: a change reaches each within moments, and one that starts later finds it.
A router that finds no row, because Redis has lost its data, writes the last one that it knew.
"""

from typing import cast

import msgspec

from pando_fleet.redis import misfits
from pando_fleet.redis.client import RedisClient, fleet_errors
from pando_fleet.redis.keys import RECORDING


class RecordingSwitch(msgspec.Struct, frozen=True, kw_only=True):
    on: bool | None = None  # None: as each router's settings say
    secret: bytes  # made by the first router; base64 in Redis

    @property
    def row(self) -> bytes:
        return msgspec.json.encode(self)

    def __repr__(self) -> str:
        return f"RecordingSwitch(on={self.on})"  # without the secret


_ROW = msgspec.json.Decoder(RecordingSwitch)


class RecordingSwitches:
    """Every method raises FleetUnavailable if Redis is away."""

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis

    async def read(self, otherwise: RecordingSwitch) -> RecordingSwitch:
        """The row; writes `otherwise` if there is none."""
        with fleet_errors():
            row = cast(bytes | None, await self._redis.get(RECORDING))
            found = row and misfits.decode("recording_switch", RECORDING, row, _ROW)
            if found:
                return found
            if row is not None:  # of another release, or written by hand
                await self._redis.set(RECORDING, otherwise.row)
                return otherwise
            await self._redis.set(RECORDING, otherwise.row, nx=True)
            row = cast(bytes | None, await self._redis.get(RECORDING))
        return (row and misfits.decode("recording_switch", RECORDING, row, _ROW)) or otherwise

    async def put(self, switch: RecordingSwitch) -> None:
        with fleet_errors():
            await self._redis.set(RECORDING, switch.row)
