"""What is said of lease updates that Redis never saw."""

import logging
from time import monotonic

from pando_router.metrics import Metrics

LOG_EVERY_S = 10.0

logger = logging.getLogger("pando.router")


class LostLeaseWrites:
    """Told by the placers; the leases end by themselves."""

    def __init__(self, metrics: Metrics) -> None:
        self._count = metrics.lease_write_failures
        self._logged_at = -LOG_EVERY_S

    def __call__(self, reason: str, count: int) -> None:
        self._count.inc(count)
        now = monotonic()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            logger.warning("a lease was left to expire", extra={"error": reason})
