"""Takes the requests under way from replicas that are out, so that they go on elsewhere at once.

The connections of such a replica stand, and nothing comes over them. They are made to fail, and
what follows is what follows a broken connection: another try before the first byte, a migration
behind it. A replica is out where its engine is stalled, by its own word; or where it is lost and
leaves this router's check unanswered, too, as one whose server hangs. Of a lost one those requests
stay of which something has just come: it is slow, and lives.
"""

import logging
from collections.abc import Iterator

from pando_router.core.flight import Flights
from pando_router.fleet_view.view import LOST_AFTER_S, Fleet, Member, MemberState
from pando_router.http.upstream import Upstream
from pando_router.telemetry.metrics import Metrics

logger = logging.getLogger("pando.router")

_WHY = {
    MemberState.STALLED: "its engine is stalled",
    MemberState.LOST: "it is lost, and does not answer a check",
}


class Abandoning:
    """`look` at each new snapshot: a request may have been on its way there at the last one."""

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
        """Those that are out, with their pool."""
        flights = self._flights
        unanswering = flights.unanswering | flights.unhealthy
        for pool, members in fleet.pools.items():
            for member in members:
                is_lost = member.state is MemberState.LOST
                is_gone = is_lost and member.beat.incarnation in unanswering
                if is_gone or member.state is MemberState.STALLED:
                    yield pool, member
