"""The data path's entry: who asks, for what, of which model; then `tries`, and what came of it.

A request is read and parsed once, here; nothing of an answer is parsed.
"""

import logging

from msgspec.structs import replace

from pando_fleet.http.request_id import request_id_of
from pando_fleet.traces import Tracing
from pando_router.access_log import AccessLog
from pando_router.byte_budget import ByteBudget
from pando_router.earlier import Earlier
from pando_router.endpoints import ENDPOINTS
from pando_router.errors import ApiError, ClientDisconnectedError, unavailable
from pando_router.exchange import Exchange
from pando_router.fleet_view import FleetView
from pando_router.http.incoming import Incoming
from pando_router.lifecycle import Lifecycle
from pando_router.live import Derived, Live
from pando_router.metrics import Metrics
from pando_router.migration.errors import MigrationError
from pando_router.migration.migrator import Migrator
from pando_router.models import Models
from pando_router.recording.recorder import Recorder
from pando_router.relay import break_off
from pando_router.rename import with_model
from pando_router.route import Prompt, resolve
from pando_router.steering import Steerer
from pando_router.tenants.limiter import Limiter, Ticket
from pando_router.tenants.tenant import OPEN
from pando_router.tenants.tenants import Tenants
from pando_router.tracing import RequestTrace
from pando_router.tries import Tries

logger = logging.getLogger("pando.router")

CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that left; only in logs and metrics


class Proxy:
    """Handler of the paths in ENDPOINTS."""

    def __init__(
        self,
        live: Live,
        view: FleetView,
        lifecycle: Lifecycle,
        tenants: Tenants,
        limiter: Limiter,
        earlier: Earlier,
        tries: Tries,
        migrator: Migrator,
        access_log: AccessLog,
        tracing: Tracing | None,
        recorder: Recorder | None,
        metrics: Metrics,
        bodies: ByteBudget,
    ) -> None:
        """`bodies` is for those of all requests."""
        self._live = live
        self._steer = Derived(live, Steerer)
        self._view = view
        self._lifecycle = lifecycle
        self._tenants = tenants
        self._limiter = limiter
        self._earlier = earlier
        self._tries = tries
        self._migrator = migrator
        self._access_log = access_log
        self._tracing = tracing
        self._recorder = recorder
        self._metrics = metrics
        self._bodies = bodies

    async def __call__(self, incoming: Incoming) -> None:
        headers = incoming.headers
        endpoint = ENDPOINTS[incoming.path]
        exchange = Exchange(incoming, endpoint, request_id_of(headers))
        if self._tracing is not None:
            exchange.trace = RequestTrace(
                self._tracing, incoming.path, headers, exchange.request_id
            )
        try:
            self._admit(incoming.method)
            exchange.tenant = tenant = self._tenants.of(headers)
            with self._lifecycle:
                settings = self._live.settings
                body = await incoming.body(settings.max_body_bytes, self._bodies)
                steering = self._steer()(headers, admin=tenant.admin)
                models = Models(self._view.fleet, settings.aliases, tenant)
                request = endpoint.parse(body)
                prompt = resolve(request, models, incoming.path, steering, tenant)
                if self._recorder is not None and request.computes:
                    exchange.entry = self._recorder.begin(prompt)
                exchange.plan = self._migrator.plan(endpoint.migration, request)
                if request.earlier is not None:
                    home = await self._earlier.at_home(request, tenant, prompt.targets)
                    prompt = replace(prompt, targets=home)
                if prompt.rename is not None:
                    body = with_model(body, prompt.rename)
                if tenant is not OPEN:
                    exchange.ticket = await self._take(prompt)
                await self._tries.serve(exchange, prompt, body)
        except MigrationError as error:
            self._migrator.failed(error, exchange.request_id)
            break_off(exchange, str(error))
        except ApiError as error:
            if exchange.stream is not None:
                self._migrator.no_replica(error, exchange.request_id)
                break_off(exchange, error.message)
            else:
                exchange.status = error.status
                await incoming.send(*endpoint.errors.answer(error, exchange.request_id))
        except ClientDisconnectedError:
            exchange.status = CLIENT_CLOSED_REQUEST
            self._metrics.disconnects.inc()
        except Exception:
            exchange.status = 500
            extra = {"request_id": exchange.request_id, "path": incoming.path}
            logger.exception("a request failed", extra=extra)
            if not incoming.started:  # else the server cuts what is left unfinished
                internal = ApiError(500, "internal error", kind="server_error")
                await incoming.send(*endpoint.errors.answer(internal, exchange.request_id))
        finally:
            self._finish(exchange)

    def _admit(self, method: str) -> None:
        if method != "POST":
            raise ApiError(405, f"{method} is not allowed here, POST is", headers={"allow": "POST"})
        if self._lifecycle.draining:
            raise unavailable("this router is shutting down", "draining")
        if self._lifecycle.requests >= self._live.settings.max_requests:
            raise unavailable("this router has all the requests it can take", "overloaded")

    async def _take(self, prompt: Prompt) -> Ticket:
        """Raises ApiError 429 where the tenant has no requests or tokens left."""
        prompt_tokens = output_tokens = 0
        if (request := prompt.request).computes:
            prompt_tokens = request.prompt_tokens(prompt.targets[0].bytes_per_token)
            expected = request.output_tokens(self._live.settings.expected_output_tokens)
            output_tokens = expected * request.n
        return await self._limiter.admit(
            prompt.tenant, prompt_tokens, output_tokens, redis_up=self._view.redis_up
        )

    def _finish(self, exchange: Exchange) -> None:
        self._metrics.requests[exchange.incoming.path, exchange.status].inc()
        if exchange.ticket:
            exchange.ticket.close()
        if exchange.stream is not None:
            exchange.stream.close()
        if self._recorder is not None and exchange.entry is not None:
            self._recorder.end(exchange.entry, exchange)
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
