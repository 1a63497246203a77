"""How many requests wait in the routers for a place in each pool, how large, and for how long.

Each router tells the length of its own queue while it is not empty, at least every `TELL_MS`; the
operator reads the sum, by which a pool grows, and one that was scaled to zero wakes. A router that
fell silent no longer counts: its clients have gone with it.
"""

from dataclasses import dataclass
from math import inf

from pando_fleet.redis import misfits
from pando_fleet.redis.client import FleetError, RedisClient
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout import calls
from pando_fleet.redis.layout.constants import SILENCE_MS
from pando_fleet.redis.layout.rows import QUEUE, QueueRow
from pando_fleet.redis.scripts import Clock, Script, time_arg

TELL_MS = 1_000


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
        self._tell = Script(redis, calls.TellQueue)
        self._read = Script(redis, calls.ReadQueues)

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
            calls.TellQueue(
                queues=PoolKeys(pool).queues,
                now=time_arg(self._clock),
                router=router,
                requests=requests,
                waited_ms=waited_ms,
                tokens=tokens,
            )
        )

    async def read(self, pool: str) -> Queued:
        now, row = await self._read(
            calls.ReadQueues(queues=PoolKeys(pool).queues, now=time_arg(self._clock))
        )
        queues = []
        for router, packed in zip(row[::2], row[1::2], strict=True):
            queue = _queue(f"{pool}/{router.decode(errors='replace')}", packed)
            if queue is not None and queue.told_ms >= now - SILENCE_MS:
                queues.append(queue)
        return Queued(
            requests=int(sum(queue.requests for queue in queues)),
            waited_ms=int(now - min((queue.since_ms for queue in queues), default=now)),
            tokens=int(sum(queue.tokens for queue in queues)),
        )


def _queue(sender: str, packed: bytes) -> QueueRow | None:
    try:
        queue = QUEUE.unpack_row(packed)
    except ValueError as error:
        misfits.skip("queue", sender, str(error))
        return None
    if not all(0 <= number < inf for number in queue):
        misfits.skip("queue", sender, f"numbers of a queue that cannot be: {queue}")
        return None
    return queue
