"""Sends a request to a replica: its headers and its body."""

from collections.abc import Awaitable
from math import inf

from pando_fleet.http.server.headers import Headers
from pando_fleet.http.time_limit import time_left
from pando_router.core.route import Route
from pando_router.exchange.exchange import Exchange, Order
from pando_router.http.answer import Answer
from pando_router.http.upstream import Upstream
from pando_router.migration.migrator import Migrator
from pando_router.migration.stream import Stream
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

    def __call__(self, exchange: Exchange, order: Order, route: Route) -> Awaitable[Answer]:
        """Returns the answer once its first byte has arrived.

        Raises what `Upstream.post` raises, and RefusedError if a stream cannot be continued.
        """
        incoming = exchange.incoming
        headers = self._forwarding(
            incoming.headers,
            exchange.request_id,
            exchange.tenant,
            route.url,
            connection=incoming.connection_header,
        )
        if exchange.limit_s != inf:
            headers.append(time_left(exchange.left_s))
        if order.plan is not None:
            self._migrator.request_token_ids(order.plan, headers)
        if exchange.trace is not None:
            headers = exchange.trace.asks(route, headers)
        if exchange.stream is not None:
            return self._rest(exchange, exchange.stream, route, headers)
        body = self._salting(order.body, incoming.path, exchange.tenant, route.url)
        return self._upstream.post(route.url, incoming.target, headers, body)

    async def _rest(
        self, exchange: Exchange, stream: Stream, route: Route, headers: Headers
    ) -> Answer:
        def post(path: bytes, body: bytes) -> Awaitable[Answer]:
            return self._upstream.post(route.url, path, headers, body)

        incoming = exchange.incoming
        body = await self._migrator.request(stream, post)
        body = self._salting(body, incoming.path, exchange.tenant, route.url)
        return await post(incoming.target, body)
