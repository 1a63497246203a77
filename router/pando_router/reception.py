"""What a request meets before it is read: is there room for it, who sends it, may they have it."""

from collections.abc import Awaitable

from pando_router.api_keys.tenant import Tenant
from pando_router.byte_budget import ByteBudget
from pando_router.errors import ApiError, unavailable
from pando_router.exchange import Exchange
from pando_router.fleet_view import FleetView
from pando_router.http.headers import Headers
from pando_router.http.incoming import Incoming
from pando_router.lifecycle import Lifecycle
from pando_router.live import Live
from pando_router.route import Prompt
from pando_router.tenants.limiter import Limiter
from pando_router.tenants.tenants import Tenants


class Reception:
    def __init__(
        self,
        live: Live,
        view: FleetView,
        lifecycle: Lifecycle,
        bodies: ByteBudget,
        tenants: Tenants,
        limiter: Limiter,
    ) -> None:
        """`bodies` is for those of all requests."""
        self.lifecycle = lifecycle
        self._live = live
        self._view = view
        self._bodies = bodies
        self._tenants = tenants
        self._limiter = limiter

    def admit(self, method: str) -> None:
        """Raises ApiError: 405, and 503 where this router takes no more."""
        if method != "POST":
            raise ApiError(405, f"{method} is not allowed here, POST is", headers={"allow": "POST"})
        if self.lifecycle.draining:
            raise unavailable("this router is shutting down", "draining")
        if self.lifecycle.requests >= self._live.settings.max_requests:
            raise unavailable("this router has all the requests it can take", "overloaded")

    def tenant(self, headers: Headers) -> Tenant:
        """Raises ApiError 401 for a key that is nobody's."""
        return self._tenants.of(headers)

    def body(self, incoming: Incoming) -> Awaitable[bytes]:
        """Raises ApiError, ClientDisconnectedError."""
        return incoming.body(self._live.settings.max_body_bytes, self._bodies)

    async def charge(self, exchange: Exchange, prompt: Prompt) -> None:
        """Raises ApiError 429 where the tenant has no requests or tokens left."""
        prompt_tokens = output_tokens = 0
        if (request := prompt.request).computes:
            prompt_tokens = request.prompt_tokens(prompt.targets[0].bytes_per_token)
            expected = request.output_tokens(self._live.settings.expected_output_tokens)
            output_tokens = expected * request.n
        ticket = await self._limiter.admit(
            prompt.tenant,
            prompt_tokens,
            output_tokens,
            exchange.keep_tail(),
            redis_up=self._view.redis_up,
        )
        exchange.rate_headers = ticket.headers
        exchange.listeners.append(ticket)
