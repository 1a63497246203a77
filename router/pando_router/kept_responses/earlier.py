"""Sends requests that continue an earlier response to the replica that keeps it.

Engines keep responses and conversations in their own memory, so another replica would not know a
`previous_response_id`. An answer's id is in its first bytes, whether it is a stream or not; nothing
more of it is read.
"""

import asyncio

from pando_fleet.records.homes import Homes
from pando_fleet.redis.client import FleetError
from pando_router.api_keys.tenant import Tenant
from pando_router.configuration.live import Live
from pando_router.core.events import Head
from pando_router.core.route import Route
from pando_router.exchange.exchange import Exchange, Listener
from pando_router.fleet_view.redis_state import RedisState
from pando_router.fleet_view.snapshot import Target
from pando_router.fleet_view.view import FleetView
from pando_router.kept_responses.home_writer import HomeWriter
from pando_router.requests.request import Request

_FIRST_BYTES = 4096


class Earlier(Listener):
    def __init__(self, homes: Homes, view: FleetView, writer: HomeWriter, live: Live) -> None:
        self._homes = homes
        self._view = view
        self._writer = writer
        self._live = live

    async def at_home(
        self, request: Request, tenant: Tenant, targets: tuple[Target, ...]
    ) -> tuple[Target, ...]:
        """The one replica that keeps the request's earlier response.

        Returns `targets` if there is no earlier response, its replica is unknown, or that replica
        takes no requests now; then the answer reports that the response is unknown.
        """
        if request.earlier is None:
            return targets
        name = home_name(tenant, request.earlier)
        for target in targets:
            if self._view.redis.of(target.pool) is RedisState.AWAY:
                continue
            try:
                async with asyncio.timeout(self._live.settings.placement_timeout):
                    home = await self._homes.find(target.pool, name)
            except (FleetError, TimeoutError) as error:
                self._view.redis.failed(target.pool, error)
                continue
            if home and (only := _only(target, home)):
                return (only,)
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
            self._writer.remember(route.pool, names, route.incarnation)


def home_name(tenant: Tenant, name: str) -> str:
    """The name of a response or conversation in Redis, separate for each tenant."""
    return f"{tenant.name}/{name}" if tenant.name else name


def _only(target: Target, home: str) -> Target | None:
    """The target with that incarnation alone; None if it takes no requests."""
    only = target.kept(lambda member: member.beat.incarnation == home, home)
    return only if only and only.trusted else None
