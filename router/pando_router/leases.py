"""What is said of lease updates that Redis never saw."""

from pando_router.bounded_log import BoundedLog
from pando_router.metrics import Metrics


class LostLeaseWrites:
    """Told by the placers; the leases end by themselves."""

    def __init__(self, metrics: Metrics) -> None:
        self._count = metrics.lease_write_failures
        self._log = BoundedLog("leases were left to expire")

    def __call__(self, reason: str, count: int) -> None:
        self._count.inc(count)
        self._log(error=reason)
