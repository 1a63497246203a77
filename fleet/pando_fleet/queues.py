"""How many requests wait in the routers for a place in each pool, how large, and for how long.

Each router tells the length of its own queue while it is not empty, at least every `TELL_MS`; the
operator reads the sum, by which a pool grows, and one that was scaled to zero wakes. A router that
fell silent no longer counts: its clients have gone with it.
"""

import struct
from dataclasses import dataclass
from math import inf

from pando_fleet import misfits
from pando_fleet.client import FleetError, RedisClient
from pando_fleet.keys import PoolKeys
from pando_fleet.scripts import Clock, Script, time_arg

TELL_MS = 1_000
SILENCE_MS = 5_000
"""After which a router's word counts no more."""


_ROW = struct.Struct(">4d")


@dataclass(frozen=True, slots=True)
class Queued:
    """Of all routers together."""

    requests: int
    waited_ms: int  # by the one that waits longest, since it came; 0 where none waits
    tokens: int  # estimated, of their prompts and expected outputs


class Queues:
    """Every method raises FleetUnavailable where Redis is away."""

    def __init__(self, redis: RedisClient, clock: Clock | None = None) -> None:
        self._clock = clock
        self._tell = Script(redis, "clock", "queue_tell")
        self._read = Script(redis, "clock", "queue_read")

    async def tell(
        self, pool: str, router: str, requests: int, waited_ms: int, tokens: int
    ) -> None:
        """`router` has `requests` of `tokens` waiting, the first for `waited_ms`; 0 requests end
        its row."""
        if not router or min(requests, waited_ms, tokens) < 0:
            raise FleetError(
                "a queue has a router's name and no negative numbers: "
                f"{router=}, {requests=}, {waited_ms=}, {tokens=}"
            )
        await self._tell(
            [PoolKeys(pool).queues],
            time_arg(self._clock),
            router,
            requests,
            waited_ms,
            SILENCE_MS,
            tokens,
        )

    async def read(self, pool: str) -> Queued:
        now, rows = await self._read([PoolKeys(pool).queues], time_arg(self._clock))
        requests, tokens, first = 0.0, 0.0, float(now)
        for router, row in zip(rows[::2], rows[1::2], strict=True):
            numbers = _ROW.unpack(row) if len(row) == _ROW.size else ()
            if not numbers or not all(0 <= number < inf for number in numbers):
                sender = f"{pool}/{router.decode(errors='replace')}"
                misfits.skip("queue", sender, f"not {_ROW.size} bytes of numbers: {row!r}")
                continue
            told, waiting, since, their_tokens = numbers
            if told >= now - SILENCE_MS:
                requests, tokens = requests + waiting, tokens + their_tokens
                first = min(first, since)
        return Queued(int(requests), int(now - first), int(tokens))
