"""How many requests wait in the routers for a place in each pool, how large they are, and since
when.

Each router reports the length of its own queue while it is not empty, at least every `REPORT_MS`.
The operator reads the sum, by which a pool grows, and one that was scaled to zero wakes. A router
that has fallen silent no longer counts, because its clients are gone, too.
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

REPORT_MS = 1_000


@dataclass(frozen=True, slots=True)
class Queued:
    """The sum over all routers."""

    requests: int
    waited_ms: int  # by the oldest request; 0 if none waits
    tokens: int  # of the requests' prompts and expected outputs, estimated


class Queues:
    """Every method raises FleetUnavailable if Redis is away."""

    def __init__(self, redis: RedisClient, clock: Clock | None = None) -> None:
        self._clock = clock
        self._report = Script(redis, calls.ReportQueue)
        self._read = Script(redis, calls.ReadQueues)

    async def report(
        self, pool: str, router: str, requests: int, waited_ms: int, tokens: int
    ) -> None:
        """Records that `router` has `requests` of `tokens` waiting, the first for `waited_ms`; 0
        requests remove its row."""
        if not router or min(requests, waited_ms, tokens) < 0:
            raise FleetError(
                "a queue needs a router's name and no negative numbers: "
                f"{router=}, {requests=}, {waited_ms=}, {tokens=}"
            )
        await self._report(
            calls.ReportQueue(
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
            if queue is not None and queue.reported_ms >= now - SILENCE_MS:
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
        misfits.skip("queue", sender, f"impossible numbers of a queue: {queue}")
        return None
    return queue
