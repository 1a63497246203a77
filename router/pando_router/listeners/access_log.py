"""The log lines of a request: one when a replica fails it, and one of the access log at its end.

The access log has a line for a sample of the requests, and for each that failed or was slow. A line
costs more than the request itself (docs/observability.md has the numbers), so a busy router writes
few; metrics count all requests.
"""

import logging
import random
from typing import Any, Protocol

from pando_router.configuration.live import Live
from pando_router.core.events import Failure
from pando_router.core.route import Route
from pando_router.exchange.exchange import Exchange, Listener
from pando_router.telemetry.bounded_log import BoundedLog

logger = logging.getLogger("pando.router")

CUT = 500
"""From this status on, servers are at fault. Lower ones are clients' errors, which anyone can cause
at will, so they are sampled."""


class Line(Protocol):
    """The properties of a request that decide whether it gets a line."""

    @property
    def status(self) -> int: ...

    @property
    def lost(self) -> str:
        """How a replica was lost during its answer; empty if none was."""


class AccessLog:
    """The access log. Ask `wants` first, and gather the fields only for a line to be written."""

    def __init__(self, live: Live, rng: random.Random) -> None:
        self.failed = BoundedLog("replica failed")
        self._random = rng.random
        self._live = live

    def wants(self, line: Line, duration_s: float) -> bool:
        settings = self._live.settings
        return (
            line.status >= CUT
            or duration_s >= settings.access_log_slow_seconds
            or self._random() < settings.access_log_sample
            or bool(line.lost)
        ) and logger.isEnabledFor(logging.INFO)

    def write(self, **fields: Any) -> None:
        logger.info("request", extra=fields)


class RequestLog(Listener):
    def __init__(self, log: AccessLog) -> None:
        self._log = log

    def failed(self, exchange: Exchange, route: Route, error: str, how: Failure) -> None:
        self._log.failed(
            route.incarnation,
            request_id=exchange.request_id,
            pool=route.pool,
            replica=route.replica,
            error=error,
            answered=exchange.ttfb_s is not None,
        )

    def ended(self, exchange: Exchange) -> None:
        if not self._log.wants(exchange, exchange.duration_s):
            return
        route = exchange.route
        self._log.write(
            request_id=exchange.request_id,
            path=exchange.incoming.path,
            status=exchange.status,
            tenant=exchange.tenant.name,
            pool=route and route.pool,
            replica=route and route.replica,
            matched_tokens=route and route.matched_tokens,
            cached_tokens=exchange.cached_tokens,
            tries=exchange.tries,
            migrations=exchange.migrations,
            ttfb_s=exchange.ttfb_s,
            duration_s=exchange.duration_s,
        )
