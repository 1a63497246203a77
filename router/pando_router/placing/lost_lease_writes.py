"""Reports lease updates that did not reach Redis."""

from pando_router.telemetry.bounded_log import BoundedLog
from pando_router.telemetry.metrics import Metrics


class LostLeaseWrites:
    """Called by the placers, whose keepers repair the leases once Redis answers."""

    def __init__(self, metrics: Metrics) -> None:
        self._count = metrics.lease_write_failures
        self._log = BoundedLog("lease updates did not reach Redis")

    def __call__(self, reason: str, count: int) -> None:
        self._count.inc(count)
        self._log(error=reason)
