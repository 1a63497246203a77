"""How long a worker that was told to end stays for its cache: until it is handed to others.

Whoever ends it (a rollout, a node that is emptied, a person) asks nobody before. The operator sees
it and marks the replica: `hand_off` where others can take its prefixes, then `drain`; a router
finds out from this replica's tree what they are, so the worker keeps it and its heartbeat until
then. Imported only where there is a Redis.
"""

import asyncio

from pando_fleet.records.marks import MarkKind, Marks
from pando_fleet.redis.client import FleetError

NOTICE_S = 5.0
"""Time for the operator to see it and to set its marks; it looks at once."""

POLL_S = 0.25


async def handed_off(marks: Marks, replica: str) -> None:
    """Returns when the hand-off is over, nobody asks for one, or Redis cannot say."""
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
