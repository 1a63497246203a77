"""What a scaling decision looks at: one pool at one moment, and what is remembered of before.

All times are seconds since 1970 of the caller's clock, which a simulation moves as it likes. Tokens
are KV tokens. Whoever calls `decide` fills a `Snapshot`, and passes `Decision.history` on in the
next one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pando_fleet.records.queues import Queued
from pando_fleet.registry.replica import Replica, ReplicaState
from pando_operator.scaling.history.history import History


@dataclass(frozen=True, slots=True)
class Signals:
    """What Redis tells."""

    replicas: tuple[Replica, ...]
    queued: Queued

    @classmethod
    def of(cls, replicas: Iterable[Replica], queued: Queued) -> "Signals":
        """Of the replicas that are ready and that no mark withholds: the others take no requests,
        so their room is none. Silent ones are in it, which is for the decision to judge."""
        is_ready = ReplicaState.READY
        return cls(
            tuple(one for one in replicas if one.beat.state is is_ready and not one.withheld),
            queued,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    current: int  # replicas that are to stay: ready, starting or failing; not those that leave
    ready: int  # of these, the ones that take requests by Kubernetes' word
    draining: int = 0  # besides `current`
    signals: Signals | None  # None: Redis is away
    start_s: float | None  # from decision to ready, learned; None until known
    history: History

    @property
    def coming(self) -> int:
        """Replicas that were asked for and take no requests yet."""
        return max(0, self.current - self.ready)
