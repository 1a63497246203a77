"""The checks before a request is placed: capacity, API key, body, rate limits."""

from collections.abc import Awaitable
from time import perf_counter

from msgspec.structs import replace

from pando_fleet.http.server.bodies import Bodies
from pando_fleet.http.time_limit import time_limit_s
from pando_router.configuration.live import Live
from pando_router.endpoints.endpoint import JSON
from pando_router.errors import ApiError, unavailable
from pando_router.exchange.exchange import Exchange, Order
from pando_router.fleet_view.models import Models
from pando_router.fleet_view.view import FleetView
from pando_router.kept_responses.earlier import Earlier
from pando_router.migration.plan import plan
from pando_router.parsing.body_reader import BodyReader
from pando_router.placing.route import resolve
from pando_router.placing.steering import Steerer
from pando_router.process.lifecycle import Lifecycle
from pando_router.telemetry.metrics import Metrics
from pando_router.tenants.charge import Charge
from pando_router.tenants.limiter import Limiter
from pando_router.tenants.tenants import Tenants


class Reception:
    """Call `body`, `read`, then `at_home` for requests that continue an earlier response, and
    `charge` if keys are required, all within the lifecycle."""

    def __init__(
        self,
        live: Live,
        view: FleetView,
        lifecycle: Lifecycle,
        bodies: Bodies,
        reader: BodyReader,
        tenants: Tenants,
        limiter: Limiter,
        earlier: Earlier,
        metrics: Metrics,
    ) -> None:
        self._live = live
        self._steer = live.derived(Steerer)
        self._view = view
        self._lifecycle = lifecycle
        self._bodies = bodies
        self._reader = reader
        self._tenants = tenants
        self._limiter = limiter
        self._earlier = earlier
        self._metrics = metrics

    def body(self, exchange: Exchange) -> Awaitable[bytes]:
        """Checks the headers and returns the body, which may still be arriving.

        Raises ApiError: 405; 503 if this router takes no more requests; 401 for an unknown key;
        400; and what `Incoming.body` raises.
        """
        incoming, settings = exchange.incoming, self._live.settings
        if incoming.method != "POST":
            message = f"{incoming.method} is not allowed for this path, use POST"
            raise ApiError(405, message, headers={"allow": "POST"})
        if self._lifecycle.draining:
            raise unavailable("this router is shutting down", "draining")
        if self._lifecycle.requests - self._bodies.arriving > settings.max_requests:
            raise unavailable("this router is at its limit of concurrent requests", "overloaded")
        headers = incoming.headers
        tenant = self._tenants.of(headers)
        exchange.headers_read(tenant, time_limit_s(headers))
        return incoming.body(
            settings.max_body_bytes,
            self._bodies,
            client=tenant.name or None,
            max_values=settings.max_body_values if exchange.endpoint.media == JSON else None,
        )

    async def read(self, exchange: Exchange, body: bytes) -> Order:
        """Parses the body. Raises ApiError 400, 403, 404, 503."""
        incoming, endpoint, tenant = exchange.incoming, exchange.endpoint, exchange.tenant
        content_type = endpoint.content_type(incoming.headers)
        request = await self._reader.parsed(endpoint, body, content_type)
        settings = self._live.settings
        if settings.drop_volatile_lines and (found := request.without_volatile_line()):
            request, form = found
            self._metrics.volatile_lines.labels(form).inc()
        steering = self._steer.now(incoming.headers, admin=tenant.admin)
        models = Models(self._view.fleet, settings.aliases, tenant)
        prompt = resolve(request, models, incoming.path, steering, tenant)
        if prompt.rename is not None:
            body = await self._reader.renamed(endpoint, body, content_type, prompt.rename)
        return Order(prompt, body, plan(settings, endpoint.migration, request))

    async def at_home(self, exchange: Exchange, order: Order) -> Order:
        """Restricts placement to the replica that keeps the earlier response, if it is found."""
        prompt, asked_at = order.prompt, perf_counter()
        home = await self._earlier.at_home(prompt.request, exchange.tenant, prompt.targets)
        exchange.waited_for_redis(perf_counter() - asked_at)
        return replace(order, prompt=replace(prompt, targets=home))

    async def charge(self, exchange: Exchange, order: Order) -> Charge:
        """Charges the tenant. Raises ApiError 429 if it has no requests or tokens left."""
        prompt_tokens = output_tokens = 0
        prompt = order.prompt
        if (request := prompt.request).computes:
            prompt_tokens = request.prompt_tokens(prompt.targets[0].bytes_per_token)
            expected = request.output_tokens(self._live.settings.expected_output_tokens)
            output_tokens = expected * request.n
        limit_s = self._live.settings.placement_timeout - exchange.redis_s
        return await self._limiter.admit(exchange.tenant, prompt_tokens, output_tokens, limit_s)
