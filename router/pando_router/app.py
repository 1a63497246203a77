"""Assembles a router: one request handler for the data path, and FastAPI for everything else."""

import os
import random
import resource
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pando_fleet.http.open_files import OTHER_FILES
from pando_fleet.http.server.asgi import AsgiHandler
from pando_fleet.http.server.bodies import Bodies
from pando_fleet.http.server.incoming import Incoming
from pando_fleet.http.server.limits import ClientLimits
from pando_fleet.http.server.server import Handler, Server
from pando_fleet.records.decisions import PastDecisions
from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.homes import Homes
from pando_fleet.records.queues import Queues
from pando_fleet.records.rate_limits import RateLimits
from pando_fleet.records.recording import RecordingSwitches
from pando_fleet.redis.client import connect
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.upstreams import UpstreamRecords
from pando_fleet.traces import Tracing
from pando_router.adapters.everywhere import Everywhere
from pando_router.adapters.routes import adapter_routes
from pando_router.admission.admission import Admission
from pando_router.admission.reports import QueueReports
from pando_router.chat.routes import CHAT_PATH, chat_routes
from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.control.app import create_control
from pando_router.control.fleet import fleet_routes
from pando_router.control.health import health_routes
from pando_router.core.flight import Flights
from pando_router.dashboard.requests import RecentRequests
from pando_router.dashboard.routes import PAGE_PATH, dashboard_routes
from pando_router.dashboard.sampler import Sampler
from pando_router.data_path.driver import Driver
from pando_router.data_path.proxy import Proxy
from pando_router.data_path.reception import Reception
from pando_router.data_path.relay import Relaying
from pando_router.data_path.sending import Sender
from pando_router.endpoints import ENDPOINTS
from pando_router.endpoints.responses import STORED_PREFIX
from pando_router.endpoints.tokenization import TOKENIZE
from pando_router.exchange.exchange import Audience, Listener
from pando_router.explaining.recent import Recent
from pando_router.explaining.routes import explain_routes
from pando_router.fleet_view.decisions import DecisionsView
from pando_router.fleet_view.redis_memory import RedisMemory
from pando_router.fleet_view.redis_state import RedisState
from pando_router.fleet_view.replica_metrics import ReplicaMetrics
from pando_router.fleet_view.replica_row import ReplicaRow
from pando_router.fleet_view.view import FleetView
from pando_router.health.abandoning import Abandoning
from pando_router.health.checks import HealthChecks
from pando_router.http.limits import ReplicaLimits
from pando_router.http.upstream import SWEEP_S, Upstream
from pando_router.kept_responses.earlier import Earlier
from pando_router.kept_responses.response_homes import ResponseHomes
from pando_router.kept_responses.stored import StoredResponses
from pando_router.listeners.access_log import AccessLog, RequestLog
from pando_router.listeners.changing_beginnings import ChangingBeginnings
from pando_router.listeners.charging import Charging
from pando_router.listeners.dashboard import Dashboard
from pando_router.listeners.metrics import RequestMetrics
from pando_router.listeners.traced import Traced
from pando_router.migration.migrator import Migrator
from pando_router.parsing.body_reader import BodyReader
from pando_router.placing.dispatch import Dispatcher
from pando_router.placing.lost_lease_writes import LostLeaseWrites
from pando_router.placing.placers import Placers
from pando_router.placing.pool_policies import PoolPolicies
from pando_router.placing.shadow import Shadow
from pando_router.policies.loads import Loads
from pando_router.process.background import Background
from pando_router.process.lifecycle import Lifecycle
from pando_router.recording.recorder import Part
from pando_router.recording.recording import RouterRecording
from pando_router.recording.routes import recording_routes
from pando_router.telemetry.metrics import Metrics
from pando_router.tenants.forwarding import Forwarding
from pando_router.tenants.guard import Guard
from pando_router.tenants.limiter import Limiter
from pando_router.tenants.salting import Salting
from pando_router.tenants.settlements import Settlements
from pando_router.tenants.tenants import Tenants
from pando_router.upstreams.learning import Learning
from pando_router.upstreams.upstreams import Upstreams
from pando_router.warming.prefiller import Prefiller
from pando_router.warming.warming import Warming

PAGES = (PAGE_PATH, CHAT_PATH)

# Asked by clients whose base URL lacks /v1: they get 404 with the right path, not 403.
WITHOUT_V1 = frozenset(
    path.removeprefix("/v1") for path in (*ENDPOINTS, "/v1/models") if path.startswith("/v1/")
)
SETTLE_S = 1.0  # for pending writes to Redis at shutdown


@dataclass(frozen=True, slots=True)
class Router:
    """The server's handler, alive within `running_router`."""

    proxy: Proxy
    stored: Handler
    control: Handler
    lifecycle: Lifecycle
    live: Live
    metrics: Metrics
    background: Background

    def __call__(self, incoming: Incoming) -> Awaitable[None]:
        if incoming.path in ENDPOINTS:
            return self.proxy(incoming)
        if incoming.path.startswith(STORED_PREFIX):
            return self.stored(incoming)
        return self.control(incoming)


@asynccontextmanager
async def running_router(
    settings: RouterSettings, *, sweep_s: float = SWEEP_S, part: Part | None = None
) -> AsyncIterator[Router]:
    """A router with its connections and background work, in the running event loop.

    Replicas' time limits hold to within `sweep_s` seconds. `part` is this process's part of a
    recording that several processes write.
    """
    # What all parts share
    live = Live(settings)
    metrics = Metrics()
    lifecycle = Lifecycle()
    background = Background()
    name = secrets.token_hex(6)  # of this process among the routers of all pools
    redis = connect(settings.redis)
    wire = Wire(redis)
    upstream = Upstream(live.derived(replica_limits), sweep_s=sweep_s)
    forwarding = Forwarding(live)
    flights = Flights(live.derived(lambda now: now.retry_share))
    reader = BodyReader()
    bodies = Bodies(
        live.derived(lambda now: now.max_bodies_bytes), live.derived(lambda now: now.max_requests)
    )

    # The fleet and Redis, as this router sees them
    registry = Registry(redis, wire=wire)
    upstreams = Upstreams(
        live,
        upstream,
        forwarding,
        registry,
        UpstreamRecords(redis),
        flights.unhealthy,
        metrics,
        random.Random(),
        background.watch,
    )
    view = FleetView(
        registry,
        ExpectedPools(redis),
        live,
        flights.answered,
        flights.recovered,
        upstreams.replicas,
    )
    memory = RedisMemory(redis, view)
    checks = HealthChecks(
        upstream, live, random.Random(), background.watch, flights, upstreams.is_probed
    )
    abandoning = Abandoning(upstream, flights, metrics)

    def refreshed(incarnations: set[str]) -> None:
        flights.breaker.keep_only(incarnations)
        flights.promises.keep_only(incarnations)
        upstreams.watch()
        checks.watch(view.fleet)
        abandoning.look(view.fleet)

    # Where a request goes
    loads = Loads(flights.in_flight)
    policies = PoolPolicies(live, loads, random.Random())
    placers = Placers(wire, live, name, LostLeaseWrites(metrics))
    dispatcher = Dispatcher(
        live,
        view,
        flights,
        placers,
        policies,
        upstream.full,
        live.derived(lambda now: shadow_of(now, live, loads, metrics)),
        metrics,
    )
    admission = Admission(live, view, flights, placers, dispatcher, metrics, random.Random())
    homes = ResponseHomes(Homes(redis), view, metrics)
    earlier = Earlier(homes, live)

    # Whose request it is
    rates = RateLimits(wire)
    settlements = Settlements(rates, metrics.tenants)
    limiter = Limiter(rates, metrics.tenants, view)
    tenants = Tenants(settings.api_keys, metrics.tenants, settings.admin_key)
    salting = Salting(upstreams.kind)

    # What is learned from requests
    prefiller = Prefiller(upstream, forwarding, salting)
    warming = Warming(settings.hot_prefix_bytes, redis, view, placers, prefiller, metrics)
    instance = f"{socket.gethostname()}:{os.getpid()}"
    tracing = Tracing.to(settings.otlp_endpoint, settings.trace_sample, "pando-router", instance)
    recording = None
    if settings.record is not None:
        recording = RouterRecording(
            live,
            settings.record,
            part or Part.of(settings),
            name,
            RecordingSwitches(redis),
            view,
            policies.name,
            admission.lengths,
            metrics,
        )
    sampler = Sampler(metrics, view, lifecycle, admission.lengths)
    requests = RecentRequests()
    recent = Recent(settings.explain_last)
    metrics.add(ReplicaMetrics(view, flights))
    follow_state(metrics, live, view, memory, admission, lifecycle, bodies)
    listeners: list[Listener] = [
        RequestMetrics(metrics),
        RequestLog(AccessLog(live, random.Random())),
        recent,
        Dashboard(requests, sampler.events),
        ChangingBeginnings(metrics, sampler.events),
        earlier,
        warming,
        Learning(upstreams.learners),
    ]
    if tracing is not None:
        listeners.append(Traced())
    if recording is not None:
        listeners.append(recording.recorder)
    if settings.api_keys is not None:
        listeners.append(Charging(metrics.tenants, settlements))

    # A request's way
    migrator = Migrator(live, metrics, TOKENIZE.paths[0])
    driver = Driver(
        live,
        flights,
        dispatcher,
        admission,
        Sender(upstream, forwarding, salting, migrator),
        Relaying(migrator),
    )
    reception = Reception(live, view, lifecycle, bodies, reader, tenants, limiter, earlier, metrics)
    proxy = Proxy(lifecycle, reception, driver, Audience(*listeners), migrator, tracing, metrics)
    stored = StoredResponses(
        live, view, lifecycle, tenants, homes, upstream, forwarding, metrics, bodies
    )

    # All other endpoints
    replica_row = ReplicaRow(flights)
    decisions = DecisionsView(PastDecisions(redis))
    routers = (
        health_routes(
            view,
            lifecycle,
            metrics,
            ended=lambda: background.ended,
            redis_advice=lambda: memory.advice.values(),
        ),
        fleet_routes(live, view, replica_row, admission.lengths, decisions),
        explain_routes(live, view, dispatcher, policies, reader, recent),
        dashboard_routes(
            live, view, lifecycle, sampler, requests, admission.lengths, replica_row, decisions
        ),
        chat_routes(live),
        adapter_routes(live, view, Everywhere(upstream, forwarding)),
        recording_routes(recording),
    )
    control = AsgiHandler(
        create_control(live, routers),
        live.derived(lambda now: now.max_body_bytes),
        bodies,
        live.derived(lambda now: now.max_body_values),
        Guard(
            tenants,
            (*PAGES, *(() if settings.metrics_need_key else ("/metrics",))),
            WITHOUT_V1,
        ),
    )

    # Work beside requests
    await view.refresh()
    upstreams.watch()
    background.start("the fleet view", view.run(refreshed))
    if settings.api_keys is not None:
        background.start("the watch of the API keys", tenants.watch())
    background.start("the watch of Redis's memory", memory.run())
    background.start("warming", warming.run())
    background.start("the dashboard's sampling", sampler.run())
    background.start("the renewal of leases", placers.keep_leases())
    background.start("the queue reports", QueueReports(Queues(redis), admission, name).run())
    if recording is not None:
        await recording.begin()
        background.start("the recording", recording.run())
    try:
        yield Router(proxy, stored, control, lifecycle, live, metrics, background)
    finally:
        await background.close()
        reader.close()
        admission.close()
        await upstreams.close()
        await checks.close()
        await homes.settle(SETTLE_S)
        await placers.settle(SETTLE_S)
        await settlements.settle(SETTLE_S)
        await upstream.close()
        if recording is not None:
            await recording.close()
        if tracing is not None:
            await tracing.close()
        await wire.aclose()
        await redis.aclose()
        metrics.fold()


def follow_state(
    metrics: Metrics,
    live: Live,
    view: FleetView,
    memory: RedisMemory,
    admission: Admission,
    lifecycle: Lifecycle,
    bodies: Bodies,
) -> None:
    """The gauges that are read when Prometheus scrapes."""
    metrics.follow(metrics.redis_up, lambda: view.redis.worst is not RedisState.AWAY)
    metrics.follow(metrics.redis_writable, lambda: view.redis.worst is RedisState.UP)
    metrics.follow(metrics.redis_memory.labels("used"), lambda: memory.used_bytes)
    metrics.follow(metrics.redis_memory.labels("max"), lambda: memory.max_bytes)
    metrics.follow(metrics.redis_memory.labels("trees"), lambda: memory.tree_bytes)
    metrics.follow_pools(metrics.queue_requests, admission.lengths)
    metrics.follow(metrics.requests_in_flight, lambda: lifecycle.requests)
    metrics.follow(metrics.body_bytes, lambda: bodies.budget.held)
    metrics.follow(metrics.settings_loaded, lambda: live.loaded_at)


def shadow_of(
    settings: RouterSettings, live: Live, loads: Loads, metrics: Metrics
) -> Shadow | None:
    """The shadow policy; its policies are not shared, so it takes no turns from the acting ones."""
    if settings.shadow_policy is None:
        return None
    apart = PoolPolicies(live, loads, random.Random())
    return Shadow(settings.shadow_policy, apart, settings.shadow_per_second, metrics)


def server_of(router: Router, *, sweep_s: float = SWEEP_S) -> Server:
    """The server whose handler is the router. Clients' time limits hold to within `sweep_s`."""
    metrics = router.metrics
    refused = metrics.connections_refused.inc
    limits = router.live.derived(client_limits)
    server = Server(router, limits, sweep_s=sweep_s, turned_away=refused)
    metrics.follow(metrics.client_connections, lambda: server.clients)
    return server


def replica_limits(settings: RouterSettings) -> ReplicaLimits:
    """The limits on connections to replicas."""
    return ReplicaLimits(
        max_connections=settings.max_replica_connections,
        connect=settings.connect_timeout,
        first_byte=settings.first_byte_timeout,
        idle=settings.idle_timeout,
        request=settings.request_timeout,
    )


def client_limits(settings: RouterSettings) -> ClientLimits:
    """The limits on clients. Connections are limited by open files, as each may need a second one
    to its replica."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ClientLimits(
        header_timeout=settings.header_timeout,
        body_timeout=settings.body_timeout,
        min_body_rate=settings.min_body_rate,
        idle_timeout=settings.keep_alive_timeout,
        write_timeout=settings.write_timeout,
        max_header_bytes=settings.max_header_bytes,
        max_connections=max(1, min(settings.max_connections, (files - OTHER_FILES) // 2)),
    )
