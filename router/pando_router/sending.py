"""How a request goes to a replica: with which headers, and which body."""

from collections.abc import Awaitable
from math import inf

from pando_fleet.http.time_limit import time_left
from pando_router.core.route import Route
from pando_router.exchange import Exchange, Order
from pando_router.http.headers import forwarded
from pando_router.http.upstream import Answer, Upstream
from pando_router.migration.migrator import Migrator
from pando_router.tenants.forwarding import Forwarding
from pando_router.tenants.salting import Salting


class Sender:
    def __init__(
        self, upstream: Upstream, forwarding: Forwarding, salting: Salting, migrator: Migrator
    ) -> None:
        self._upstream = upstream
        self._forwarding = forwarding
        self._salting = salting
        self._migrator = migrator

    async def __call__(self, exchange: Exchange, order: Order, route: Route) -> Answer:
        """The answer, with its first byte. Raises what `Upstream.post` raises, and RefusedError
        where the rest of a stream cannot be asked for."""
        incoming, body = exchange.incoming, order.body
        headers = forwarded(incoming.headers, exchange.request_id)
        headers = self._forwarding(headers, exchange.tenant, route.url)
        if exchange.limit_s != inf:
            headers.append(time_left(exchange.left_s))
        self._migrator.asked(order.plan, headers)
        if exchange.trace is not None:
            headers = exchange.trace.asks(route, headers)
        if exchange.stream is not None:

            def post(path: bytes, body: bytes) -> Awaitable[Answer]:
                return self._upstream.post(route.url, path, headers, body)

            body = await self._migrator.request(exchange.stream, post)
        body = self._salting(body, incoming.path, exchange.tenant, route.url)
        return await self._upstream.post(route.url, incoming.target, headers, body)
