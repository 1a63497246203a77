"""Takes a request from its tenant's rate limits; `listeners/charging.py` settles it at the end.

While Redis is away, no limits are checked: requests are served and counted in a metric.
"""

import asyncio
from time import perf_counter

from pando_fleet.http.server.headers import Headers
from pando_fleet.records.limits import Limits
from pando_fleet.records.rate_limits import RateLimits, Taken
from pando_fleet.redis.client import FleetError, FleetUnavailable
from pando_router.api_keys.tenant import Tenant
from pando_router.errors import ApiError
from pando_router.fleet_view.view import FleetView
from pando_router.telemetry.tenant_metrics import TenantMetrics
from pando_router.tenants.charge import Charge
from pando_router.tenants.rate_headers import rate_headers

LEFT_ALONE_S = 1.0
"""How long a server that holds a tenant's limits is not asked after it did not answer."""


class Limiter:
    def __init__(self, rates: RateLimits, metrics: TenantMetrics, view: FleetView) -> None:
        self._rates = rates
        self._metrics = metrics
        self._view = view
        self._alone_until: dict[str, float] = {}  # by tenant, for those whose server did not answer

    async def admit(
        self, tenant: Tenant, prompt_tokens: int, output_tokens: int, limit_s: float
    ) -> Charge:
        """Asks Redis for at most `limit_s`. Raises ApiError 429 if the tenant has too few requests
        or tokens left."""
        self._metrics.of(tenant.name).requests.inc()
        headers: Headers = []
        reserved, redis_s = None, 0.0
        if limits := tenant.limits:
            tokens = prompt_tokens + output_tokens
            started = perf_counter()
            taken = await self._take(tenant, tokens, limit_s)
            redis_s = perf_counter() - started
            if taken is not None:
                headers = rate_headers(limits, taken)
                if taken.wait_ms:
                    raise self._refusal(tenant, taken, tokens, headers)
                reserved = min(tokens, limits.tokens) if limits.tokens else None
        return Charge(prompt_tokens, reserved, headers, redis_s)

    async def _take(self, tenant: Tenant, tokens: int, limit_s: float) -> Taken | None:
        if self._view.redis_up and perf_counter() >= self._alone_until.get(tenant.name, 0.0):
            try:
                async with asyncio.timeout(limit_s):
                    return await self._rates.take(tenant.name, tenant.limits, tokens)
            except (FleetUnavailable, TimeoutError):
                self._alone_until[tenant.name] = perf_counter() + LEFT_ALONE_S
            except FleetError:
                pass  # Redis answered; counted below
        self._metrics.unchecked_limits.inc()
        return None

    def _refusal(self, tenant: Tenant, taken: Taken, tokens: int, headers: Headers) -> ApiError:
        counts = self._metrics.of(tenant.name)
        if taken.tokens.wait_ms >= taken.requests.wait_ms:
            kind, limited = "tokens", counts.limited_tokens
        else:
            kind, limited = "requests", counts.limited_requests
        limited.inc()
        answer = {name.decode(): value.decode() for name, value in headers}
        answer["retry-after"] = str(-(-taken.wait_ms // 1000))
        answer["retry-after-ms"] = str(taken.wait_ms)
        return ApiError(
            429,
            _message(tenant.limits, taken, kind, tokens),
            kind=kind,
            code="rate_limit_exceeded",
            headers=answer,
        )


def _message(limits: Limits, taken: Taken, kind: str, tokens: int) -> str:
    limit, left, asked = (
        (limits.tokens, taken.tokens.left, tokens)
        if kind == "tokens"
        else (limits.requests, taken.requests.left, 1)
    )
    return (
        f"rate limit reached: {limit} {kind} a minute, {left} left, {asked} needed; try again in"
        f" {taken.wait_ms / 1000:.3f} s"
    )
