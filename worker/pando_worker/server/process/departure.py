"""How long a worker that shuts down waits until other replicas have its cache.

A shutdown (rollout, node drain, manual deletion) comes without warning. The operator notices it and
marks the replica: `hand_off` if other replicas can take its prefixes, then `drain`. A router reads
the prefixes from this replica's tree, so the worker keeps the tree and its heartbeat until then.
Imported only if there is a Redis.
"""

import asyncio

from pando_fleet.records.marks import MarkKind, Marks
from pando_fleet.redis.client import FleetError

NOTICE_S = 5.0
"""Time for the operator, which watches pods, to notice the shutdown and to set its marks."""

POLL_S = 0.25


async def handed_off(marks: Marks, replica: str) -> None:
    """Returns when the hand-off is over, when none is requested, or when Redis does not answer."""
    loop = asyncio.get_running_loop()
    noticed_by = loop.time() + NOTICE_S
    while True:
        try:
            mine = {mark.kind: mark for mark in await marks.all() if mark.replica == replica}
        except FleetError:
            return
        hand_off = mine.get(MarkKind.HAND_OFF)
        if hand_off is not None and hand_off.is_over:
            return
        if hand_off is None and (MarkKind.DRAIN in mine or loop.time() >= noticed_by):
            return
        await asyncio.sleep(POLL_S)
