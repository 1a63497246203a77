"""Sends requests that continue an earlier response to the replica that keeps it.

Engines keep responses and conversations in their own memory, so another replica would not know a
`previous_response_id`. An answer's id is in its first bytes, whether it is a stream or not; nothing
more of it is read.
"""

from pando_fleet.redis.client import FleetUnavailable
from pando_router.api_keys.tenant import Tenant
from pando_router.configuration.live import Live
from pando_router.core.events import Head
from pando_router.core.route import Route
from pando_router.errors import unavailable
from pando_router.exchange.exchange import Exchange, Listener
from pando_router.fleet_view.snapshot import MemberState, Target
from pando_router.kept_responses.response_homes import ResponseHomes
from pando_router.requests.request import Request

_FIRST_BYTES = 4096


class Earlier(Listener):
    def __init__(self, homes: ResponseHomes, live: Live) -> None:
        self._homes = homes
        self._live = live

    async def at_home(
        self, request: Request, tenant: Tenant, targets: tuple[Target, ...]
    ) -> tuple[Target, ...]:
        """The one replica that keeps the request's earlier response.

        Returns `targets` if there is no earlier response, no replica is known to keep it, or that
        one ends; then the answer reports that the response is unknown. Raises ApiError 503 if the
        replica is silent or not ready now, or cannot be found because Redis does not answer: any
        other would report, for good, that the response is unknown.
        """
        if request.earlier is None:
            return targets
        name = home_name(tenant, request.earlier)
        within_s, redis_answered = self._live.settings.placement_timeout, True
        for target in targets:
            try:
                home = await self._homes.find(target.pool, name, within_s)
            except FleetUnavailable:
                redis_answered = False
                continue
            if home and (only := _only(target, home)):
                return (only,)
        if not redis_answered and sum(len(target.trusted) for target in targets) > 1:
            message = "redis is away, so the earlier response's replica cannot be found"
            raise unavailable(message, "redis_away")
        return targets

    def answered(self, exchange: Exchange, route: Route, head: Head) -> None:
        """Records the replica of a successful answer under the id in its first bytes."""
        name_in, order = exchange.endpoint.answer_name, exchange.order
        if name_in is None or order is None or head.status >= 400:
            return
        earlier = order.prompt.request.earlier
        names = [earlier] if earlier else []
        if named := name_in.search(head.first_bytes, 0, _FIRST_BYTES):
            names.append(named[1].decode())
        if names:
            names = [home_name(exchange.tenant, name) for name in names]
            self._homes.remember(route.pool, names, route.incarnation)


def home_name(tenant: Tenant, name: str) -> str:
    """The name of a response or conversation in Redis, separate for each tenant."""
    return f"{tenant.name}/{name}" if tenant.name else name


def _only(target: Target, home: str) -> Target | None:
    """The target with that incarnation alone; None if that one is gone or ends. Raises ApiError 503
    if it takes no requests for now."""
    only = target.kept(lambda member: member.beat.incarnation == home, home)
    if only is None or only.trusted:
        return only
    (member,) = only.members
    if member.state is MemberState.DRAINING:
        return None
    message = (
        f"replica {member.beat.replica!r}, which keeps the earlier response, is {member.state}"
    )
    raise unavailable(message, "no_ready_replica")
