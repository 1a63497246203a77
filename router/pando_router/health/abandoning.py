"""Takes the requests under way from replicas that are out, so that they go on elsewhere at once.

The connections of such a replica stand, and nothing comes over them: its engine is stalled, by its
own word, or it is lost. They are made to fail, and what follows is what follows a broken
connection: another try before the first byte, a migration behind it.
"""

import logging
from collections.abc import Iterator

from pando_router.fleet_view import Fleet, Member, MemberState
from pando_router.http.upstream import Upstream
from pando_router.metrics import Metrics

logger = logging.getLogger("pando.router")

_WHY = {MemberState.STALLED: "its engine is stalled"}


class Abandoning:
    """`look` at each new snapshot: a request may have been on its way there at the last one."""

    def __init__(self, upstream: Upstream, metrics: Metrics) -> None:
        self._upstream = upstream
        self._metrics = metrics

    def look(self, fleet: Fleet) -> None:
        for pool, member, why in self._out(fleet):
            url, state = member.beat.url, member.state.value
            if count := self._upstream.abandon(url, why):
                self._metrics.abandoned.labels(pool, state).inc(count)
                extra = {"replica": member.beat.replica, "url": url, "requests": count}
                logger.warning("requests leave a replica: %s", why, extra=extra)

    def _out(self, fleet: Fleet) -> Iterator[tuple[str, Member, str]]:
        """Those that are out, with their pool and why."""
        for pool, members in fleet.pools.items():
            for member in members:
                if why := _WHY.get(member.state):
                    yield pool, member, why
