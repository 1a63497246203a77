"""The data path: bytes out as they come; nothing of an answer is parsed.

A request is read and parsed once, then tried at up to `max_tries` replicas until one sends a first
byte. From then on the answer is that replica's, for good or bad.
"""

import logging
from dataclasses import dataclass, field
from time import perf_counter

from pando_router.dispatch import Dispatcher
from pando_router.error_forms import error_of, stream_error_of
from pando_router.errors import ApiError, ClientDisconnectedError, unavailable
from pando_router.fleet_view import FleetView
from pando_router.flight import CacheReport, Flight, Flights
from pando_router.http.headers import forwarded
from pando_router.http.incoming import Incoming
from pando_router.http.upstream import (
    Answer,
    ReplicaFailedError,
    ReplicaSilentError,
    Upstream,
)
from pando_router.lifecycle import Lifecycle
from pando_router.metrics import Metrics
from pando_router.models import Models
from pando_router.rename import with_model
from pando_router.request_id import request_id_of
from pando_router.requests import parse
from pando_router.route import Prompt, Route, resolve
from pando_router.settings import RouterSettings
from pando_router.steering import Steerer
from pando_router.tenants.forwarding import Forwarding
from pando_router.tenants.limiter import Limiter, Ticket
from pando_router.tenants.tenant import OPEN, Tenant
from pando_router.tenants.tenants import Tenants

CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that left; only in logs and metrics

logger = logging.getLogger("pando.router")


@dataclass(slots=True)
class Exchange:
    """One request and what becomes of it; what the access log says."""

    incoming: Incoming
    request_id: str
    started: float = field(default_factory=perf_counter)
    status: int = 0
    route: Route | None = None
    tries: int = 0
    ttfb_s: float | None = None
    cached_tokens: int | None = None
    tenant: Tenant = OPEN
    ticket: Ticket | None = None  # of the tenant's rate limits

    @property
    def elapsed_s(self) -> float:
        return perf_counter() - self.started


class Proxy:
    """Handler of the paths in requests.PARSERS."""

    def __init__(
        self,
        settings: RouterSettings,
        view: FleetView,
        dispatcher: Dispatcher,
        flights: Flights,
        upstream: Upstream,
        metrics: Metrics,
        lifecycle: Lifecycle,
        tenants: Tenants,
        limiter: Limiter,
    ) -> None:
        self._settings = settings
        self._steer = Steerer(settings)
        self._view = view
        self._dispatcher = dispatcher
        self._flights = flights
        self._upstream = upstream
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._tenants = tenants
        self._limiter = limiter
        self._forwarding = Forwarding.of(settings)

    async def __call__(self, incoming: Incoming) -> None:
        headers = incoming.headers
        exchange = Exchange(incoming, request_id_of(headers))
        try:
            self._admit(incoming.method)
            exchange.tenant = tenant = self._tenants.of(headers)
            with self._lifecycle.serving():
                body = await incoming.body(self._settings.max_body_bytes)
                steering = self._steer(headers, body)
                models = Models(self._view.fleet, self._settings.aliases, tenant)
                request = parse(incoming.path, body)
                prompt = resolve(request, models, incoming.path, steering, tenant)
                if prompt.rename is not None:
                    body = with_model(body, prompt.rename)
                if tenant is not OPEN:
                    exchange.ticket = await self._take(prompt)
                await self._serve(exchange, prompt, body)
        except ApiError as error:
            exchange.status = error.status
            await incoming.send(*error_of(incoming.path, error, exchange.request_id))
        except ClientDisconnectedError:
            exchange.status = CLIENT_CLOSED_REQUEST
            self._metrics.disconnects.inc()
        finally:
            self._finish(exchange)

    def _admit(self, method: str) -> None:
        if method != "POST":
            raise ApiError(405, f"{method} is not allowed here, POST is", headers={"allow": "POST"})
        if self._lifecycle.draining:
            raise unavailable("this router is shutting down", "draining")
        if self._lifecycle.requests >= self._settings.max_requests:
            raise unavailable("this router has all the requests it can take", "overloaded")

    async def _take(self, prompt: Prompt) -> Ticket:
        """Raises ApiError 429 where the tenant has no requests or tokens left."""
        prompt_tokens = output_tokens = 0
        if (request := prompt.request).computes:
            prompt_tokens = request.prompt_tokens(prompt.targets[0].bytes_per_token)
            expected = request.output_tokens(self._settings.expected_output_tokens)
            output_tokens = expected * request.n
        return await self._limiter.admit(
            prompt.tenant, prompt_tokens, output_tokens, redis_up=self._view.redis_up
        )

    async def _serve(self, exchange: Exchange, prompt: Prompt, body: bytes) -> None:
        """Tries replicas until one answers. Raises ApiError where none does."""
        failures: dict[str, str] = {}  # by incarnation, what happened
        while len(failures) < self._settings.max_tries:
            route = await self._dispatcher.place(prompt, failures)
            if route is None:
                break
            exchange.route = route
            exchange.tries += 1
            if failures:
                self._metrics.retries.labels(route.pool).inc()
            # A placement is not interrupted, or its lease would stay; what follows is.
            with (
                self._flights.open(prompt, route) as flight,
                exchange.incoming.until_gone(),
            ):
                try:
                    answer = await self._ask(exchange, route, body)
                except ReplicaFailedError as error:
                    flight.failed_before_first_byte()
                    failures[route.incarnation] = f"{route.replica}: {error}"
                    self._log_failure(exchange, route, error)
                    continue
                try:
                    await self._relay(exchange, answer, route, flight)
                finally:
                    answer.close()
                return
        raise _no_replica(prompt, failures)

    async def _ask(self, exchange: Exchange, route: Route, body: bytes) -> Answer:
        incoming = exchange.incoming
        headers = forwarded(incoming.headers, exchange.request_id)
        headers = self._forwarding(headers, exchange.tenant)
        try:
            return await self._upstream.post(route.url, incoming.target, headers, body)
        except ReplicaSilentError as error:
            # It has the request and may be at work on it: asking another would do the work twice.
            raise ApiError(
                504,
                f"replica {route.replica!r} {error}",
                kind="upstream_error",
                code="replica_silent",
            ) from error

    async def _relay(
        self, exchange: Exchange, answer: Answer, route: Route, flight: Flight
    ) -> None:
        report = _cache_report(answer)
        if answer.status < 400:
            flight.first_byte(report, complete=answer.complete)
        else:
            flight.refused()
        exchange.status = answer.status
        exchange.cached_tokens = report.cached_tokens if report else None
        exchange.ttfb_s = exchange.elapsed_s
        self._metrics.ttfb.labels(route.pool).observe(exchange.ttfb_s)
        headers = answer.headers()
        headers += (
            (b"x-request-id", exchange.request_id.encode()),
            (b"x-pando-replica", route.replica.encode()),
            (b"x-pando-matched-tokens", b"%d" % route.matched_tokens),
        )
        if ticket := exchange.ticket:
            headers = ticket.answered(answer.status, headers)
        incoming = exchange.incoming
        incoming.start(answer.status, headers)
        chunk = answer.first_chunk
        while not answer.complete:
            if ticket:
                ticket.add(chunk)
            await incoming.write(chunk)
            try:
                chunk = await answer.read()
            except (ReplicaFailedError, ReplicaSilentError) as error:
                if isinstance(error, ReplicaFailedError):
                    flight.failed_mid_stream()
                self._log_failure(exchange, route, error)
                if answer.is_event_stream:
                    lost = f"replica {route.replica!r} was lost mid-stream: {error}"
                    incoming.end(stream_error_of(incoming.path, lost, exchange.request_id))
                # Anything else is left unfinished: the server cuts the connection, so that the
                # client cannot take a part for the whole.
                return
        if ticket:
            ticket.add(chunk)
        incoming.end(chunk)

    def _log_failure(self, exchange: Exchange, route: Route, error: Exception) -> None:
        logger.warning(
            "replica failed",
            extra={
                "request_id": exchange.request_id,
                "pool": route.pool,
                "replica": route.replica,
                "error": str(error),
                "answered": exchange.ttfb_s is not None,
            },
        )

    def _finish(self, exchange: Exchange) -> None:
        self._metrics.requests.labels(exchange.incoming.path, str(exchange.status)).inc()
        if exchange.ticket:
            exchange.ticket.close()
        route = exchange.route
        duration_s = exchange.elapsed_s
        if route is not None:
            self._metrics.duration.labels(route.pool).observe(duration_s)
        if logger.isEnabledFor(logging.INFO):
            logger.info(
                "request",
                extra={
                    "request_id": exchange.request_id,
                    "path": exchange.incoming.path,
                    "status": exchange.status,
                    "tenant": exchange.tenant.name,
                    "pool": route and route.pool,
                    "replica": route and route.replica,
                    "matched_tokens": route and route.matched_tokens,
                    "cached_tokens": exchange.cached_tokens,
                    "tries": exchange.tries,
                    "ttfb_s": exchange.ttfb_s,
                    "duration_s": duration_s,
                },
            )


def _cache_report(answer: Answer) -> CacheReport | None:
    cached, prompt = answer.count(b"x-pando-cached-tokens"), answer.count(b"x-pando-prompt-tokens")
    return None if cached is None or prompt is None else CacheReport(cached, prompt)


def _no_replica(prompt: Prompt, failures: dict[str, str]) -> ApiError:
    model = prompt.targets[0].model
    if failures:
        happened = "; ".join(failures.values())
        return unavailable(f"no replica could take the request ({happened})", "replicas_failed")
    states = ", ".join(
        f"{member.beat.replica} is {member.state.value}"
        for target in prompt.targets
        for member in target.members
    )
    return unavailable(f"no replica of model {model!r} is ready: {states}", "no_ready_replica")
