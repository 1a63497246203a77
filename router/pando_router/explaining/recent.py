"""Remembers the last placed requests and their outcomes, for `/route/explain?request_id=`.

This runs on the path of every request, so it only keeps references to what exists already. At debug
level, the log has the reason of each choice.
"""

import logging
from collections import deque
from time import time

from msgspec.structs import asdict

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router.core.route import Route
from pando_router.exchange.exchange import Exchange, Listener
from pando_router.exchange.past import Past
from pando_router.explaining import reasons

logger = logging.getLogger("pando.router")


class Recent(Listener):
    """The last `limit` tries; 0 keeps none."""

    def __init__(self, limit: int) -> None:
        self._past: deque[Past] = deque(maxlen=limit)

    def placed(self, exchange: Exchange, route: Route) -> None:
        order, tried, tenant = exchange.order, exchange.last_try, exchange.tenant
        assert order is not None and tried is not None
        prompt = order.prompt
        target = prompt.targets[0]
        past = Past(
            exchange.request_id,
            time(),
            target.adapter or target.model,
            route.pool,
            route.replica,
            route.policy,
            tenant.name,
            tenant.isolate or bool(prompt.request.cache_salt),
            prompt.request.images,
            len(prompt.keys) // KEY_BYTES,
            route.placement,
            tried,
        )
        self._past.append(past)
        if logger.isEnabledFor(logging.DEBUG):
            _log(past)

    def of(self, request_id: str) -> list[Past]:
        """The request's tries, the latest first."""
        return [past for past in reversed(self._past) if past.request_id == request_id]


def _log(past: Past) -> None:
    candidates = past.placement.candidates if past.placement else ()
    logger.debug(
        "placed",
        extra={
            "request_id": past.request_id,
            "pool": past.pool,
            "policy": past.policy,
            "replica": past.replica,
            "reason": reasons.past_choice(past),
            "candidates": [asdict(candidate) for candidate in candidates],
        },
    )
