"""Takes requests away from lost and stalled replicas, so that they continue elsewhere at once.

Such a replica's connections stay open but nothing arrives on them. They are made to fail, with the
same result as a broken connection: a retry before the first byte, a migration after it. This
applies to replicas that report a stalled engine, and to those that are lost and do not answer this
router's checks either, such as one whose server hangs. A lost replica keeps requests whose answer
sent bytes lately: it is slow but alive.
"""

import logging
from collections.abc import Iterator

from pando_router.core.flight import Flights
from pando_router.fleet_view.snapshot import LOST_AFTER_S, Fleet, Member, MemberState
from pando_router.http.upstream import Upstream
from pando_router.telemetry.metrics import Metrics

logger = logging.getLogger("pando.router")

_WHY = {
    MemberState.STALLED: "its engine is stalled",
    MemberState.LOST: "it is lost and does not answer health checks",
}


class Abandoning:
    """Call `look` at each snapshot, as a request may have been sent there since the last one."""

    def __init__(self, upstream: Upstream, flights: Flights, metrics: Metrics) -> None:
        self._upstream = upstream
        self._flights = flights
        self._metrics = metrics

    def look(self, fleet: Fleet) -> None:
        for pool, member in self._out(fleet):
            url, state = member.beat.url, member.state
            silent_s = LOST_AFTER_S if state is MemberState.LOST else 0.0
            if count := self._upstream.abandon(url, _WHY[state], silent_s=silent_s):
                self._metrics.abandoned.labels(pool, state.value).inc(count)
                extra = {"replica": member.beat.replica, "url": url, "requests": count}
                logger.warning("requests leave a replica: %s", _WHY[state], extra=extra)

    def _out(self, fleet: Fleet) -> Iterator[tuple[str, Member]]:
        """The stalled or lost members, with their pool."""
        flights = self._flights
        unanswering = flights.unanswering | flights.unhealthy
        for pool, members in fleet.pools.items():
            for member in members:
                is_lost = member.state is MemberState.LOST
                is_gone = is_lost and member.beat.incarnation in unanswering
                if is_gone or member.state is MemberState.STALLED:
                    yield pool, member
