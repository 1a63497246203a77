"""The cost of observability per request: CPU time, best of five rounds.

Run: python -m bench.router.observability

Measures the access log as the `pando` command writes it (JSON lines, to /dev/null), traces whose
spans are all kept and passed to a processor that drops them, metrics with and without looking up
labels, and what the dashboard keeps of each request and reads each second.
"""

import argparse
import logging
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, TextIO, cast

from prometheus_client import CollectorRegistry, Counter

from pando.logs import LogSettings, configure
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_fleet.traces import Tracing
from pando_router.api_keys.tenant import OPEN, Tenant
from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.core.events import CacheReport
from pando_router.core.route import Route
from pando_router.dashboard.requests import RecentRequests
from pando_router.dashboard.sampler import Sampler
from pando_router.exchange.exchange import Exchange
from pando_router.fleet_view.redis_state import RedisStates
from pando_router.fleet_view.snapshot import Fleet, Member
from pando_router.fleet_view.view import FleetView
from pando_router.listeners.access_log import AccessLog
from pando_router.listeners.dashboard import Dashboard
from pando_router.process.lifecycle import Lifecycle
from pando_router.telemetry.metrics import Metrics
from pando_router.telemetry.tracing import RequestTrace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ROUNDS = 5
HEADERS = [(b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
ROUTE = Route("default", "worker-0", "i1", "http://127.0.0.1:30000")


@dataclass(frozen=True, slots=True)
class Line:
    status: int = 200
    lost: str = ""
    path: str = "/v1/completions"


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    configure(LogSettings(format="json"))
    metrics = Metrics()
    report = sys.stdout
    with Path("/dev/null").open("w") as nowhere:
        sys.stderr = nowhere
        for name, sample in (("each request", 1.0), ("1 %, the default", 0.01), ("none", 0.0)):
            log = AccessLog(Live(RouterSettings(access_log_sample=sample)), random.Random(1))
            show(report, f"access log, {name}", partial(access, log), 3_000)
        logging.getLogger("pando.router").setLevel(logging.WARNING)
        log = AccessLog(Live(RouterSettings(access_log_sample=1.0)), random.Random(1))
        show(report, "access log, level off", partial(access, log), 100_000)
    for name, tracing in (("kept", Tracing(dropping(1.0))), ("not sampled", Tracing(dropping(0)))):
        headers = HEADERS if name == "kept" else []
        show(report, f"trace, {name}", partial(trace, tracing, headers), 2_000)
    path = "/v1/completions"
    plain = Counter("requests", "", ("path", "status"), registry=CollectorRegistry())
    show(report, "a counter by labels()", lambda: plain.labels(path, "200").inc())
    child = plain.labels(path, "200")
    show(report, "a counter looked up once", lambda: child.inc())
    show(report, "a tally", lambda: metrics.requests[path, 200].inc())
    sampler = Sampler(metrics, cast(FleetView, Nowhere()), Lifecycle(), dict)
    for pool in range(8):
        metrics.ttfb[f"pool{pool}", "stream"].observe(0.1)
        for status in (200, 429, 503):
            metrics.requests[f"/v1/{pool}", status].inc()
    show(report, "dashboard, a point (8 pools)", sampler.sample, 200)
    sampler = Sampler(metrics, cast(FleetView, Crowded()), Lifecycle(), dict)
    show(report, "dashboard, a point (300 replicas)", sampler.sample, 200)
    dashboard = Dashboard(RecentRequests(), sampler.events)
    show(report, "dashboard, a request", partial(dashboard.ended, cast(Exchange, Ended())))


class Nowhere:
    fleet = Fleet()
    redis = RedisStates()


class Crowded(Nowhere):
    fleet = Fleet(
        {
            "default": tuple(
                Member(
                    Heartbeat(
                        replica=f"r{n}",
                        incarnation=f"i{n}",
                        url="http://h",
                        model="m",
                        state=ReplicaState.READY,
                    ),
                    age_ms=0,
                    silent_s=0.0,
                )
                for n in range(300)
            )
        }
    )


@dataclass(slots=True)
class Ended:
    """What the dashboard reads of a request that has ended."""

    request_id: str = "0af7651916cd43dd8448eb211c80319c"
    incoming: Line = field(default_factory=Line)
    tenant: Tenant = OPEN
    order: None = None
    route: Route = ROUTE
    report: CacheReport = field(default_factory=lambda: CacheReport(208, 256))
    stream: None = None
    status: int = 200
    is_complete: bool = True
    ttfb_s: float = 0.031
    duration_s: float = 0.42
    tries: int = 1


def show(report: TextIO, name: str, call: Callable[[], object], times: int = 50_000) -> None:
    print(f"{name:32} {cost(call, times):9.2f} µs", file=report)


def cost(call: Callable[[], object], times: int) -> float:
    """Microseconds of CPU per call."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = process_time()
        for _ in range(times):
            call()
        best = min(best, process_time() - started)
    return best / times * 1e6


def access(log: AccessLog) -> None:
    if log.wants(Line(), 0.1):
        log.write(
            request_id="0af7651916cd43dd8448eb211c80319c",
            path="/v1/chat/completions",
            status=200,
            tenant="",
            pool="default",
            replica="worker-0",
            matched_tokens=192,
            cached_tokens=208,
            tries=1,
            migrations=0,
            ttfb_s=0.031,
            duration_s=0.42,
        )


def trace(tracing: Tracing, headers: list[tuple[bytes, bytes]]) -> None:
    """Does what the proxy does for a request with one try."""
    request = RequestTrace(tracing, "/v1/completions", headers, "r")
    request.placement(0, ROUTE)
    request.asks(ROUTE, headers)
    request.answered(200)
    request.finish(200, pool="default", replica="worker-0", tries=1)


def dropping(sample: float) -> "TracerProvider":
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(sample), shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    return provider


if __name__ == "__main__":
    main()
