"""The last requests that were placed, and what became of them: for `/route/explain?request_id=`.

Written on the way of every request, so it keeps what is there anyway. Where the log shows debug
lines, the reason of each choice is one of them.
"""

import logging
from collections import deque
from time import time

from msgspec.structs import asdict

from pando_fleet.prefix import KEY_BYTES
from pando_router import reasons
from pando_router.core.events import CacheReport, Head, Listener
from pando_router.core.route import Route
from pando_router.exchange import Exchange
from pando_router.past import Past
from pando_router.policies import Policies
from pando_router.route import Prompt

logger = logging.getLogger("pando.router")


class Recent:
    """The last `limit` tries; 0 keeps none."""

    def __init__(self, limit: int, policies: Policies) -> None:
        self._policies = policies
        self._past: deque[Past] = deque(maxlen=limit)

    @property
    def keeps_any(self) -> bool:
        return bool(self._past.maxlen) or logger.isEnabledFor(logging.DEBUG)

    def placed(self, request_id: str, prompt: Prompt, route: Route) -> Past:
        """Remembers a try; what becomes of it is for `Remembered` to fill in."""
        target, tenant = prompt.targets[0], prompt.tenant
        past = Past(
            request_id,
            time(),
            target.adapter or target.model,
            route.pool,
            route.replica,
            prompt.steering.policy,
            tenant.name,
            bool(tenant.salt or prompt.request.cache_salt),
            len(prompt.keys) // KEY_BYTES,
            route.placement,
        )
        self._past.append(past)
        if logger.isEnabledFor(logging.DEBUG):
            self._log(past)
        return past

    def of(self, request_id: str) -> list[Past]:
        """The request's tries, the last one first."""
        return [past for past in reversed(self._past) if past.request_id == request_id]

    def _log(self, past: Past) -> None:
        policy = self._policies.name(past.pool, past.wanted)
        candidates = past.placement.candidates if past.placement else ()
        logger.debug(
            "placed",
            extra={
                "request_id": past.request_id,
                "pool": past.pool,
                "policy": policy,
                "replica": past.replica,
                "reason": reasons.past_choice(past, policy),
                "candidates": [asdict(candidate) for candidate in candidates],
            },
        )


class Remembered(Listener):
    """Has a request's tries remembered."""

    __slots__ = ("_exchange", "_past", "_prompt", "_recent")

    def __init__(self, recent: Recent, exchange: Exchange, prompt: Prompt) -> None:
        self._recent = recent
        self._exchange = exchange
        self._prompt = prompt
        self._past: Past | None = None  # the last try

    def placed(self, route: Route) -> None:
        self._past = self._recent.placed(self._exchange.request_id, self._prompt, route)

    def answered(self, route: Route, head: Head) -> None:
        if self._past is not None:
            self._past.status = head.status

    def cached(self, route: Route, report: CacheReport, *, was_cut: bool) -> None:
        if (past := self._past) is not None:
            past.cached_tokens, past.prompt_tokens = report.cached_tokens, report.prompt_tokens
