"""What decisions remember: an explicit value that each decision reads and returns changed.

Everything in it is bounded. `to_status` keeps what a restarted operator needs, small enough for a
WorkerPool's status; samples are not kept, so averages and trends begin anew.
"""

from dataclasses import dataclass

SAMPLES_KEPT = 720
"""Thinned out to this many over the time that is looked back at."""

EVENTS_KEPT = 256
USAGE_KEPT = 64


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What was wanted before stabilization."""

    at_s: float
    replicas: int


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """A change of the pool's size that was carried out; `by` names the proposal that caused it."""

    at_s: float
    before: int
    after: int
    by: str = ""

    @property
    def change(self) -> int:
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Usage:
    """Replica-seconds spent between `since_s` and the next entry."""

    since_s: float
    replica_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a pool, summed over the replicas that take requests."""

    at_s: float
    ready: int
    capacity_tokens: int
    pinned_tokens: int
    waiting_tokens: int  # prompt and expected output, of replicas and routers
    release_tokens_per_s: float
    hot_evicted_tokens: int  # since the sample before


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Oldest entries first."""

    samples: tuple[Sample, ...] = ()
    counters: tuple[tuple[str, int, int], ...] = ()  # incarnation, prompt and hot tokens so far
    # Of all recommendations only those that can be a window's highest, and its lowest.
    highs: tuple[Recommendation, ...] = ()
    lows: tuple[Recommendation, ...] = ()
    events: tuple[ScaleEvent, ...] = ()
    last_busy_s: float | None = None
    panic_at_s: float | None = None  # when demand was last above the threshold
    panic_replicas: int = 0  # most that were wanted in this panic
    usage: tuple[Usage, ...] = ()
    seen_s: float | None = None  # when usage was last counted
    capacity_tokens: int = 0  # of a replica, as last seen
