"""The router as one handler of requests: the data path first, everything else to FastAPI."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pando_fleet.client import connect
from pando_fleet.rate_limits import RateLimits
from pando_fleet.registry import Registry
from pando_router.breaker import Breaker
from pando_router.control import create_control
from pando_router.dispatch import Dispatcher
from pando_router.fleet_view import FleetView
from pando_router.flight import Flights
from pando_router.http.asgi import AsgiHandler
from pando_router.http.incoming import Incoming
from pando_router.http.limits import Limits
from pando_router.http.server import Handler
from pando_router.http.upstream import SWEEP_S, Timeouts, Upstream
from pando_router.in_flight import InFlight
from pando_router.leases import LeaseWriter
from pando_router.lifecycle import Lifecycle
from pando_router.metrics import Metrics
from pando_router.policies import Policies
from pando_router.policies.loads import Loads
from pando_router.proxy import Proxy
from pando_router.requests import PARSERS
from pando_router.settings import RouterSettings
from pando_router.tenants.guard import Guard
from pando_router.tenants.limiter import Limiter
from pando_router.tenants.settlements import Settlements
from pando_router.tenants.tenants import Tenants

SETTLE_S = 1.0  # for lease writes still under way at the end


@dataclass(frozen=True, slots=True)
class Router:
    """The server's handler. `running_router` is its life."""

    proxy: Proxy
    control: Handler
    lifecycle: Lifecycle

    async def __call__(self, incoming: Incoming) -> None:
        if incoming.path in PARSERS:
            await self.proxy(incoming)
        else:
            await self.control(incoming)


@asynccontextmanager
async def running_router(
    settings: RouterSettings, *, sweep_s: float = SWEEP_S
) -> AsyncIterator[Router]:
    """A router with its connections and background work, in the running event loop.

    Replicas' time limits hold to within `sweep_s` seconds.
    """
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
    upstream = Upstream(
        settings.max_replica_connections, timeouts(settings), sweep_s=sweep_s
    )
    rates = RateLimits(redis)
    settlements = Settlements(rates, metrics.tenants)
    limiter = Limiter(rates, settlements, metrics.tenants, settings.placement_timeout)
    tenants = Tenants(settings.api_keys, metrics.tenants)
    metrics.redis_up.set_function(lambda: view.redis_up)
    metrics.requests_in_flight.set_function(lambda: lifecycle.requests)

    await view.refresh()
    refreshing = asyncio.create_task(view.run(breaker.keep_only))
    watching = asyncio.create_task(tenants.watch())
    try:
        yield Router(
            Proxy(
                settings,
                view,
                dispatcher,
                flights,
                upstream,
                metrics,
                lifecycle,
                tenants,
                limiter,
            ),
            AsgiHandler(
                Guard(
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
                    tenants,
                    () if settings.metrics_need_key else ("/metrics",),
                ),
                settings.max_body_bytes,
            ),
            lifecycle,
        )
    finally:
        refreshing.cancel()
        watching.cancel()
        await asyncio.wait([refreshing, watching])
        await leases.settle(SETTLE_S)
        await settlements.settle(SETTLE_S)
        await upstream.close()
        await redis.aclose()


def timeouts(settings: RouterSettings) -> Timeouts:
    """How long replicas may take."""
    return Timeouts(
        connect=settings.connect_timeout,
        first_byte=settings.first_byte_timeout,
        idle=settings.idle_timeout,
        request=settings.request_timeout,
    )


def limits(settings: RouterSettings) -> Limits:
    """What clients may take."""
    return Limits(
        header_timeout=settings.header_timeout,
        body_timeout=settings.body_timeout,
        idle_timeout=settings.keep_alive_timeout,
        write_timeout=settings.write_timeout,
        max_header_bytes=settings.max_header_bytes,
    )
