"""The data path: bytes out as they come; nothing of an answer is parsed.

A request is read and parsed once, then tried at up to `max_tries` replicas until one sends a first
byte. From then on the answer is that replica's, unless it is lost amid a stream that another one
can go on with (`migration`).
"""

import logging
from collections.abc import Awaitable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from time import perf_counter, time_ns

from pando_router.access_log import AccessLog
from pando_router.admission.admission import Admission
from pando_router.admission.shortage import Shortage
from pando_router.dispatch import Dispatcher
from pando_router.earlier import Earlier
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
from pando_router.migration.errors import MigrationError
from pando_router.migration.migrator import Migrator
from pando_router.migration.stream import Stream
from pando_router.models import Models
from pando_router.past import Past
from pando_router.recent import Recent
from pando_router.rename import with_model
from pando_router.request_id import request_id_of
from pando_router.requests import parse
from pando_router.retry_budget import RetryBudget
from pando_router.route import Prompt, Route, resolve
from pando_router.settings import RouterSettings
from pando_router.steering import Steerer
from pando_router.tenants.forwarding import Forwarding
from pando_router.tenants.limiter import Limiter, Ticket
from pando_router.tenants.tenant import OPEN, Tenant
from pando_router.tenants.tenants import Tenants
from pando_router.tracing import RequestTrace, Tracing
from pando_router.warming.warming import Warming

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
    past: Past | None = None  # its last try, to be explained later
    ticket: Ticket | None = None  # of the tenant's rate limits
    stream: Stream | None = None  # what is out of an answer that can be migrated
    lost: str = ""  # how its last replica was lost
    trace: RequestTrace | None = None  # where traces are wanted

    @property
    def elapsed_s(self) -> float:
        return perf_counter() - self.started


@dataclass(slots=True)
class Busy:
    """A replica's 429: passed on where no other replica takes the request."""

    answer: Answer
    route: Route
    flight: Flight


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
        warming: Warming,
        recent: Recent,
        earlier: Earlier,
        admission: Admission,
        forwarding: Forwarding,
        access_log: AccessLog,
        tracing: Tracing | None,
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
        self._warming = warming
        self._recent = recent
        self._earlier = earlier
        self._admission = admission
        self._access_log = access_log
        self._tracing = tracing
        self._budget = RetryBudget(settings.retry_share)
        self._forwarding = forwarding
        self._migrator = Migrator(settings, metrics)

    def adopt(self, settings: RouterSettings) -> None:
        """Other settings hold for new requests."""
        self._steer = Steerer(settings)
        self._budget.share = settings.retry_share

    async def __call__(self, incoming: Incoming) -> None:
        headers = incoming.headers
        exchange = Exchange(incoming, request_id_of(headers))
        if self._tracing is not None:
            exchange.trace = self._tracing.request(incoming.path, headers, exchange.request_id)
        try:
            self._admit(incoming.method)
            exchange.tenant = tenant = self._tenants.of(headers)
            with self._lifecycle.serving():
                body = await incoming.body(self._settings.max_body_bytes)
                steering = self._steer(headers)
                models = Models(self._view.fleet, self._settings.aliases, tenant)
                request = parse(incoming.path, body)
                prompt = resolve(request, models, incoming.path, steering, tenant)
                if request.earlier is not None:
                    home = await self._earlier.at_home(request, prompt.targets)
                    prompt = replace(prompt, targets=home)
                if prompt.rename is not None:
                    body = with_model(body, prompt.rename)
                if tenant is not OPEN:
                    exchange.ticket = await self._take(prompt)
                await self._serve(exchange, prompt, body)
        except MigrationError as error:
            self._migrator.failed(error, exchange.request_id)
            self._break(exchange, str(error))
        except ApiError as error:
            if exchange.stream is not None:
                self._migrator.no_replica(error, exchange.request_id)
                self._break(exchange, error.message)
            else:
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
        self._budget.request()
        failures: dict[str, str] = {}  # by incarnation, what happened
        reason = ""  # of the next try
        allowed = self._settings.max_tries
        busy: Busy | None = None
        try:
            while len(failures) < allowed:
                route = await self._find(exchange, prompt, body, failures, wait=busy is None)
                if route is None:
                    break
                exchange.route = route
                exchange.past = self._recent.placed(exchange.request_id, prompt, route)
                exchange.tries += 1
                if reason:
                    self._budget.retry()
                    self._metrics.retries.labels(route.pool, reason).inc()
                if busy is not None:
                    busy.answer.close()
                    busy = None
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
                        reason = str(error.status or "connection")
                        if not self._may_retry(route):
                            break
                        continue
                    if answer.status == 429 and len(failures) + 1 < allowed:
                        busy = Busy(answer, route, flight)
                        failures[route.incarnation] = f"{route.replica}: answered 429"
                        reason = "429"
                        if not self._may_retry(route):
                            break
                        continue
                    if answer.status < 400:
                        path = exchange.incoming.path
                        self._earlier.remember(path, prompt.request, route, answer.first_chunk)
                        self._warming.seen(route.pool, path, body, prompt)
                    try:
                        lost = await self._relay(exchange, answer, route, flight, body)
                    finally:
                        answer.close()
                    if lost is None:
                        return
                # Its stream goes on at another replica, which is looked for as the first one was.
                failures[route.incarnation] = lost
                reason = "mid_stream"
                allowed = len(failures) + self._settings.max_tries
            if busy is not None:
                with exchange.incoming.until_gone():
                    await self._relay(exchange, busy.answer, busy.route, busy.flight, body)
                return
        finally:
            if busy is not None:
                busy.answer.close()
        raise _no_replica(prompt, failures)

    async def _find(
        self, exchange: Exchange, prompt: Prompt, body: bytes, tried: dict[str, str], *, wait: bool
    ) -> Route | None:
        """A replica outside `tried`, in the request's turn; None where there is none.

        A request that has to wait for room forgets where it failed: until then that replica may be
        well again, and the breaker knows where it is not.
        """
        admission, trace = self._admission, exchange.trace
        begun_ns = 0 if trace is None else time_ns()
        if not tried and admission.waiting and admission.queued(prompt):
            found: Route | Shortage = Shortage.FULL
        else:
            found = await self._dispatcher.place(prompt, tried)
        if trace is not None:
            trace.placed(begun_ns, found if isinstance(found, Route) else None)
        if isinstance(found, Route):
            return found
        if found is Shortage.NONE or not wait:
            return None
        with exchange.incoming.until_gone(), trace.part("queue") if trace else nullcontext():
            return await admission.wait(exchange.incoming, prompt, len(body), found)

    def _may_retry(self, route: Route) -> bool:
        if self._budget.allows():
            return True
        self._metrics.retries_refused.labels(route.pool).inc()
        return False

    async def _ask(self, exchange: Exchange, route: Route, body: bytes) -> Answer:
        incoming = exchange.incoming
        headers = forwarded(incoming.headers, exchange.request_id)
        headers = self._forwarding(headers, exchange.tenant, route.url)
        self._migrator.asked(incoming.path, headers)
        trace = exchange.trace
        if trace is not None:
            headers = trace.asks(route, headers)
        try:
            if exchange.stream is not None:

                def post(path: bytes, body: bytes) -> Awaitable[Answer]:
                    return self._upstream.post(route.url, path, headers, body)

                body = await self._migrator.request(exchange.stream, post)
            answer = await self._upstream.post(route.url, incoming.target, headers, body)
            if trace is not None:
                trace.answered(answer.status)
            return answer
        except ReplicaSilentError as error:
            # It has the request and may be at work on it: asking another would do the work twice.
            raise ApiError(
                504,
                f"replica {route.replica!r} {error}",
                kind="upstream_error",
                code="replica_silent",
            ) from error

    async def _relay(
        self, exchange: Exchange, answer: Answer, route: Route, flight: Flight, body: bytes
    ) -> str | None:
        """None where that is the end of it; how the replica was lost where another is to go on.

        Raises MigrationError where none can.
        """
        report = _cache_report(answer)
        if answer.status < 400:
            flight.first_byte(report, complete=answer.complete)
        else:
            flight.refused()
        if exchange.stream is None:
            self._begin(exchange, answer, route, report, body)
        else:
            flight.observation = None  # what follows is no answer to the prompt alone
            self._migrator.goes_on(exchange.stream, answer, exchange.request_id, route.replica)
        incoming, stream, ticket = exchange.incoming, exchange.stream, exchange.ticket
        observation = flight.observation
        chunk = answer.first_chunk
        try:
            while True:
                if observation is not None:
                    observation.add(chunk)
                if stream is not None:
                    chunk = stream.pass_on(chunk)
                if ticket:
                    ticket.add(chunk)
                if stream is not None and stream.failed:
                    await incoming.write(chunk)
                    raise ReplicaFailedError("it can serve no more")
                if answer.complete:
                    incoming.end(chunk if stream is None else chunk + stream.end())
                    if observation is not None:
                        self._reported(exchange, flight.done())
                    return None
                if chunk or stream is None:
                    await incoming.write(chunk)
                chunk = await answer.read()
        except (ReplicaFailedError, ReplicaSilentError) as error:
            if isinstance(error, ReplicaFailedError):
                flight.failed_mid_stream()
            self._log_failure(exchange, route, error)
            exchange.lost = f"replica {route.replica!r} was lost mid-stream: {error}"
        if stream is not None:
            if self._migrator.lost(stream, exchange.request_id):
                return exchange.lost
            incoming.end(stream.ending)
        elif answer.is_event_stream:
            self._break(exchange)
        # Anything else is left unfinished: the server cuts the connection, so that the client
        # cannot take a part for the whole.
        return None

    def _begin(
        self,
        exchange: Exchange,
        answer: Answer,
        route: Route,
        report: CacheReport | None,
        body: bytes,
    ) -> None:
        """The answer's head to the client."""
        exchange.status = answer.status
        exchange.cached_tokens = None
        if exchange.past is not None:
            exchange.past.status = answer.status
        self._reported(exchange, report)
        exchange.ttfb_s = exchange.elapsed_s
        kind = "stream" if answer.is_event_stream else "whole"
        self._metrics.ttfb[route.pool, kind].observe(exchange.ttfb_s)
        headers = answer.headers()
        headers += (
            (b"x-request-id", exchange.request_id.encode()),
            (b"x-pando-replica", route.replica.encode()),
            (b"x-pando-matched-tokens", b"%d" % route.matched_tokens),
        )
        if ticket := exchange.ticket:
            headers = ticket.answered(answer.status, headers)
        exchange.stream = self._migrator.stream(exchange.incoming.path, body, answer)
        exchange.incoming.start(answer.status, headers)

    def _reported(self, exchange: Exchange, report: CacheReport | None) -> None:
        """What the replica said of its cache, with the first byte or at the end."""
        if report is None:
            return
        exchange.cached_tokens = report.cached_tokens
        if (past := exchange.past) is not None:
            past.cached_tokens, past.prompt_tokens = report.cached_tokens, report.prompt_tokens

    def _break(self, exchange: Exchange, why: str = "") -> None:
        """Ends a stream that has begun with an error event."""
        message = exchange.lost
        if why:
            message += f"; it cannot go on at another one: {why}"
        incoming = exchange.incoming
        incoming.end(stream_error_of(incoming.path, message, exchange.request_id))

    def _log_failure(self, exchange: Exchange, route: Route, error: Exception) -> None:
        if exchange.trace is not None:
            exchange.trace.failed(str(error))
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
        self._metrics.requests[exchange.incoming.path, exchange.status].inc()
        if exchange.ticket:
            exchange.ticket.close()
        if exchange.stream is not None:
            exchange.stream.close()
        route = exchange.route
        duration_s = exchange.elapsed_s
        if route is not None:
            self._metrics.duration[route.pool].observe(duration_s)
        if exchange.trace is not None:
            self._end_trace(exchange, exchange.trace)
        if self._access_log.wants(exchange, duration_s):
            self._access_log.write(
                request_id=exchange.request_id,
                path=exchange.incoming.path,
                status=exchange.status,
                tenant=exchange.tenant.name,
                pool=route and route.pool,
                replica=route and route.replica,
                matched_tokens=route and route.matched_tokens,
                cached_tokens=exchange.cached_tokens,
                tries=exchange.tries,
                migrations=exchange.stream.migrations if exchange.stream else 0,
                ttfb_s=exchange.ttfb_s,
                duration_s=duration_s,
            )

    def _end_trace(self, exchange: Exchange, trace: RequestTrace) -> None:
        route = exchange.route
        trace.finish(
            exchange.status,
            tenant=exchange.tenant.name or None,
            pool=route.pool if route else None,
            replica=route.replica if route else None,
            matched_tokens=route.matched_tokens if route else None,
            cached_tokens=exchange.cached_tokens,
            tries=exchange.tries,
            migrations=exchange.stream.migrations if exchange.stream else 0,
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
