"""The input of a scaling decision: one pool at one moment, with its history.

Times are seconds since 1970 on the caller's clock, which a simulation controls. Tokens are KV
tokens. The caller of `decide` fills a `Snapshot` and passes `Decision.history` on in the next one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pando_fleet.records.queues import Queued
from pando_fleet.registry.replica import Replica, ReplicaState
from pando_operator.scaling.history.history import History


@dataclass(frozen=True, slots=True)
class Signals:
    """A pool's signals in Redis."""

    replicas: tuple[Replica, ...]
    queued: Queued

    @classmethod
    def of(cls, replicas: Iterable[Replica], queued: Queued) -> "Signals":
        """Select the replicas that are ready and that no mark withholds: the others take no
        requests, so they offer no capacity. Silent ones are included; the decision judges them."""
        is_ready = ReplicaState.READY
        return cls(
            tuple(one for one in replicas if one.beat.state is is_ready and not one.withheld),
            queued,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    current: int  # replicas that stay: ready, starting or failing, but not those that leave
    ready: int  # of these, those that Kubernetes reports as ready
    draining: int = 0  # not counted in `current`
    late: int = 0  # of those that are not ready: they should have been long ago
    silent: int = 0  # of `ready`: nobody has heard of them for minutes
    signals: Signals | None  # None: Redis is unreachable
    start_s: float | None  # learned time from decision to ready; None until known
    history: History

    @property
    def coming(self) -> int:
        """Replicas that were requested and should take requests soon."""
        return max(0, self.current - self.ready - self.late)
