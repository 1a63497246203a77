"""The router as one ASGI app: the data path first, everything else to FastAPI."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from pando_fleet.client import connect
from pando_fleet.registry import Registry
from pando_router.breaker import Breaker
from pando_router.control import create_control
from pando_router.dispatch import Dispatcher
from pando_router.fleet_view import FleetView
from pando_router.flight import Flights
from pando_router.in_flight import InFlight
from pando_router.leases import LeaseWriter
from pando_router.lifecycle import Lifecycle
from pando_router.metrics import Metrics
from pando_router.policies import Policies
from pando_router.policies.loads import Loads
from pando_router.proxy import Proxy
from pando_router.requests import PARSERS
from pando_router.settings import RouterSettings
from pando_router.upstream import Upstream

SETTLE_S = 1.0  # for lease writes still under way at the end


@dataclass(frozen=True, slots=True)
class Router:
    """The ASGI app. Has no lifespan of its own: `running_router` is its life."""

    proxy: Proxy
    control: ASGIApp
    lifecycle: Lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in PARSERS:
            await self.proxy(scope, receive, send)
        else:
            await self.control(scope, receive, send)


@asynccontextmanager
async def running_router(settings: RouterSettings) -> AsyncIterator[Router]:
    """A router with its connections and background work, in the running event loop."""
    redis = connect(settings.redis)
    metrics = Metrics()
    view = FleetView(Registry(redis))
    breaker = Breaker()
    in_flight = InFlight()
    lifecycle = Lifecycle()
    leases = LeaseWriter(view, metrics)
    loads = Loads(in_flight, view)
    policies = Policies(settings, loads, random.Random())
    dispatcher = Dispatcher(redis, view, policies, loads, breaker, metrics, settings)
    flights = Flights(in_flight, breaker, leases, metrics)
    upstream = Upstream(settings.max_requests, settings.connect_timeout, settings.read_timeout)
    metrics.redis_up.set_function(lambda: view.redis_up)
    metrics.requests_in_flight.set_function(lambda: lifecycle.requests)

    await view.refresh()
    refreshing = asyncio.create_task(view.run(breaker.keep_only))
    try:
        yield Router(
            Proxy(settings, view, dispatcher, flights, upstream, metrics, lifecycle),
            create_control(
                settings,
                view,
                dispatcher,
                breaker,
                in_flight,
                lifecycle,
                metrics,
                alive=lambda: not refreshing.done(),
            ),
            lifecycle,
        )
    finally:
        refreshing.cancel()
        await asyncio.wait([refreshing])
        await leases.settle(SETTLE_S)
        await upstream.close()
        await redis.aclose()
