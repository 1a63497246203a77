"""A tenant's rate limits, request by request: taken before it runs, settled when it has ended.

While Redis is away nobody's limits are checked: requests are served and counted in a metric.
"""

import asyncio

from pando_fleet.client import FleetError
from pando_fleet.rate_limits import Limits, RateLimits, Taken
from pando_router.api_keys.tenant import Tenant
from pando_router.core.events import Failure, Head, Listener
from pando_router.core.route import Route
from pando_router.errors import ApiError
from pando_router.http.headers import Headers
from pando_router.live import Live
from pando_router.tail import Tail
from pando_router.tenant_metrics import TenantMetrics
from pando_router.tenants.rate_headers import rate_headers
from pando_router.tenants.settlements import Settlements


class Ticket(Listener):
    """One request from its admission to its end, which settles what it has used."""

    __slots__ = (
        "_answered",
        "_metrics",
        "_prompt",
        "_reserved",
        "_sent",
        "_settlements",
        "_tail",
        "_tenant",
        "headers",
    )

    def __init__(
        self,
        tenant: Tenant,
        prompt_tokens: int,
        reserved: int | None,
        headers: Headers,
        tail: Tail,
        metrics: TenantMetrics,
        settlements: Settlements,
    ) -> None:
        self.headers = headers  # of the answer: the tenant's limits
        self._tenant = tenant
        self._prompt = prompt_tokens  # estimated, until the answer says it
        self._reserved = reserved  # tokens; None where none were taken
        self._tail = tail
        self._metrics = metrics
        self._settlements = settlements
        self._sent = False  # a replica has it, and may be at work on it
        self._answered = False

    def placed(self, route: Route) -> None:
        """The prompt is paid for from here on, whoever leaves."""
        self._sent = True

    def not_sent(self, route: Route) -> None:
        self._sent = False

    def was_busy(self, route: Route) -> None:
        self._sent = False

    def failed(self, route: Route, error: str, how: Failure) -> None:
        if how is Failure.NO_ANSWER:  # else it may have worked for it
            self._sent = False

    def answered(self, route: Route, head: Head) -> None:
        if self._answered:  # what goes on there is the rest of an answer
            return
        if head.status >= 400:
            self._sent = False
            return
        self._answered = True
        if head.report is not None:
            self._prompt = head.report.prompt_tokens

    def ended(self) -> None:
        """What the request used is counted; what it had reserved beyond that is given back, all of
        it where no replica did anything for it.

        Where the client left before the answer, or the replica never began it, the prompt costs
        what it was estimated at: else whoever always leaves would have a replica for nothing.
        """
        prompt = output = 0
        if self._answered or self._sent:
            prompt = self._prompt
            if self._answered:
                usage, output = self._tail.usage(), self._tail.events
                if usage is not None:
                    prompt = prompt if usage.prompt is None else usage.prompt
                    output = output if usage.output is None else usage.output
            counts = self._metrics.of(self._tenant.name)
            counts.prompt_tokens.inc(prompt)
            counts.output_tokens.inc(output)
        if self._reserved is not None and (missing := prompt + output - self._reserved):
            self._settlements.add(self._tenant, missing)


class Limiter:
    def __init__(
        self,
        rates: RateLimits,
        settlements: Settlements,
        metrics: TenantMetrics,
        live: Live,
    ) -> None:
        self._rates = rates
        self._settlements = settlements
        self._metrics = metrics
        self._live = live

    async def admit(
        self, tenant: Tenant, prompt_tokens: int, output_tokens: int, tail: Tail, *, redis_up: bool
    ) -> Ticket:
        """`tail` will be that of the answer.

        Raises ApiError 429 where the tenant has not so many left.
        """
        self._metrics.of(tenant.name).requests.inc()
        headers: Headers = []
        reserved = None
        if limits := tenant.limits:
            tokens = prompt_tokens + output_tokens
            taken = await self._take(tenant, tokens, redis_up=redis_up)
            if taken is not None:
                headers = rate_headers(limits, taken)
                if taken.wait_ms:
                    raise self._refusal(tenant, taken, tokens, headers)
                reserved = min(tokens, limits.tokens) if limits.tokens else None
        return Ticket(
            tenant, prompt_tokens, reserved, headers, tail, self._metrics, self._settlements
        )

    async def _take(self, tenant: Tenant, tokens: int, *, redis_up: bool) -> Taken | None:
        if redis_up:
            try:
                async with asyncio.timeout(self._live.settings.placement_timeout):
                    return await self._rates.take(tenant.name, tenant.limits, tokens)
            except (FleetError, TimeoutError):
                pass  # counted below; whether Redis is away is the fleet view's to say
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
        f"rate limit reached: {limit} {kind} a minute, of which {left} are left and {asked} are"
        f" wanted; try again in {taken.wait_ms / 1000:.3f} s"
    )
