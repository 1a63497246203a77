"""Writes that nobody waits for: queued here, and sent in batches to Redis.

The first write after a pause is sent in the same turn of the event loop. Those of the next
`EVERY_S`, or until the current call is answered, are sent together in the next call, or before the
next placement, which therefore sees this router's earlier writes. All calls share one wire, so
operations reach Redis in the order in which they were queued.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from msgspec.structs import astuple

from pando_fleet.redis.client import FleetError
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import OPERATIONS, Operation, Settle
from pando_fleet.redis.scripts import Clock, time_arg
from pando_fleet.redis.wire import Line, WireScript

EVERY_S = 0.002
"""The interval of calls: at 5,000 requests a second, ten are settled at once."""

MAX_OPERATIONS = 128
"""Operations per call, during which Redis can answer nobody else."""

MAX_WEIGHT = 16_384
"""Bytes of paths per call, unless it has only one operation: about a millisecond."""

MAX_QUEUED = 16_384
MAX_QUEUED_BYTES = 64 << 20
"""Limits of the queue: operations, and bytes of their paths; further ones fail."""

Failed = Callable[[str, int], None]
"""Called with the reason and the number of lost writes."""


class Settling:
    """One pool's queue of writes; see `layout/calls.py` for the operations."""

    def __init__(
        self,
        wire: Line,
        keys: PoolKeys,
        clock: Clock | None,
        failed: Failed | None,
        every_s: float | None,
    ) -> None:
        self._clock = clock
        self._failed = failed
        self._every_s = every_s
        self._script = WireScript(wire, Settle)
        leases, parts, loads = keys.leases
        self._settle = partial(
            Settle,
            leases=leases,
            parts=parts,
            loads=loads,
            tree_prefix=keys.tree_prefix,
            ledger_prefix=keys.ledger_prefix,
        )
        self._queue: deque[tuple[Operation, int]] = deque()
        self._queued_bytes = 0
        self._under_way = 0  # operations sent but not answered
        self._timer: asyncio.Handle | None = None
        self._sent_at = 0.0
        self._put = 0  # operations ever queued
        self._settled = 0  # of those, written or lost
        self._answered: asyncio.Future[None] | None = None  # of a call, while `flush` waits

    def put(self, operation: Operation, weight: int = 0) -> None:
        """Queues an operation with `weight` bytes of paths."""
        if len(self._queue) >= MAX_QUEUED or self._queued_bytes + weight > MAX_QUEUED_BYTES:
            self._lost("too many writes are waiting", 1)
            return
        self._queue.append((operation, weight))
        self._put += 1
        self._queued_bytes += weight
        if self._timer is None and not self._under_way and self._every_s is not None:
            self._schedule(self._every_s)

    def hurry(self) -> None:
        """Sends the queue, so that the caller's next call on this wire sees it."""
        while self._queue:
            self._send()

    async def flush(self) -> None:
        """Returns when everything queued now is written or lost; later operations are not waited
        for, because steady traffic never ends."""
        goal = self._put
        while self._settled < goal:
            if self._answered is None:
                self._answered = asyncio.get_running_loop().create_future()
            if not self._under_way:
                self._send()
            await asyncio.shield(self._answered)

    async def settle(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            self._lost("the time limit of settling is over", len(self._queue) + self._under_way)
            self._settled += len(self._queue)
            self._queue.clear()
            self._queued_bytes = 0

    def _schedule(self, every_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = self._sent_at + every_s
        if due <= loop.time():
            self._timer = loop.call_soon(self._send)
        else:
            self._timer = loop.call_at(due, self._send)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._queue:
            return
        args: list[str | bytes | int] = []
        queue, count, total = self._queue, 0, 0
        while queue and count < MAX_OPERATIONS:
            operation, weight = queue[0]
            if count and total + weight > MAX_WEIGHT:
                break
            queue.popleft()
            args.append(OPERATIONS[type(operation)])
            args += astuple(operation)
            count += 1
            total += weight
        self._queued_bytes -= total
        self._under_way += count
        sent = partial(self._sent, count)
        self._sent_at = asyncio.get_running_loop().time()
        try:
            self._script.send(self._settle(now=time_arg(self._clock)), args, sent)
        except FleetError as error:
            asyncio.get_running_loop().call_soon(sent, error)

    def _sent(self, count: int, reply: object) -> None:
        self._under_way -= count
        self._settled += count
        if self._answered is not None:
            answered, self._answered = self._answered, None
            answered.set_result(None)
            if self._queue:
                self._send()
        elif self._queue and self._timer is None and self._every_s is not None:
            # A full call is sent at once.
            full = len(self._queue) >= MAX_OPERATIONS or self._queued_bytes >= MAX_WEIGHT
            self._schedule(0.0 if full else self._every_s)
        if isinstance(reply, FleetError):
            self._lost(str(reply), count)

    def _lost(self, reason: str, count: int) -> None:
        if self._failed is not None:
            self._failed(reason, count)
