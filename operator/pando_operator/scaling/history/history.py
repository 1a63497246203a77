"""What decisions remember: an explicit value that each decision reads and returns changed.

Everything in it is bounded. Samples and counters are lost where the operator restarts, so averages
and trends begin anew; the rest is small enough for a WorkerPool's status.
"""

from dataclasses import dataclass, replace

SAMPLES_KEPT = 720
"""Above it every other one of the older half is dropped."""

COUNTERS_KEPT = 1024
EVENTS_KEPT = 256
USAGE_KEPT = 64
KEPT_S = 3600.0
"""Recommendations and events are kept so long, as windows and periods look back at most."""


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
    """Replica-seconds spent from `since_s` until the next entry begins."""

    since_s: float
    replica_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a pool, summed over the replicas that take requests."""

    at_s: float
    pinned_tokens: int
    waiting_tokens: int  # prompt and expected output, of replicas and routers
    release_tokens_per_s: float
    queue_wait_s: float
    # Of the replicas in which some requests run, and at least as many wait there or for it.
    crowded_pinned_tokens: int
    crowded_room_tokens: int  # their capacity
    hot_evicted_tokens: int  # since samples began
    capacity_tokens: int
    replicas: int  # whose sum this is

    @property
    def demand_tokens(self) -> int:
        return self.pinned_tokens + self.waiting_tokens

    @property
    def is_crowded(self) -> bool:
        """Whether it tells what room is usable: half of the pool's must be crowded."""
        return 0 < self.capacity_tokens <= 2 * self.crowded_room_tokens


@dataclass(frozen=True, slots=True)
class Counter:
    """How far one incarnation of a replica had counted."""

    incarnation: str
    prompt_tokens: int
    hot_evicted_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Oldest entries first."""

    samples: tuple[Sample, ...] = ()
    counters: tuple[Counter, ...] = ()  # of the replicas last seen
    # Of all recommendations, only those that can still be a window's highest, or its lowest: the
    # former fall and the latter grow, so there are at most as many as different sizes.
    highs: tuple[Recommendation, ...] = ()
    lows: tuple[Recommendation, ...] = ()
    events: tuple[ScaleEvent, ...] = ()
    last_busy_s: float | None = None
    panic_at_s: float | None = None  # when demand was last above the threshold
    panic_replicas: int = 0  # most that were wanted in this panic
    usage: tuple[Usage, ...] = ()
    seen_s: float | None = None  # up to when usage is counted
    capacity_tokens: int = 0  # of a replica, as last seen
    residence_s: float | None = None  # how long a token stays pinned, smoothed
    usable_share: float = 1.0  # of a replica's capacity: what it fills while requests wait

    @property
    def usable_tokens(self) -> float:
        """Room of a replica that running requests can fill."""
        return self.usable_share * self.capacity_tokens

    def recommended(self, now_s: float, replicas: int) -> "History":
        """With one more recommendation."""
        new = Recommendation(now_s, replicas)
        oldest = now_s - KEPT_S
        highs = [r for r in self.highs if r.replicas > replicas and r.at_s > oldest]
        lows = [r for r in self.lows if r.replicas < replicas and r.at_s > oldest]
        return replace(self, highs=(*highs, new), lows=(*lows, new))

    def scaled(self, now_s: float, before: int, after: int, by: str | None) -> "History":
        """With one more change of size, which the caller has carried out."""
        kept = [event for event in self.events if event.at_s > now_s - KEPT_S]
        event = ScaleEvent(now_s, before, after, by or "")
        return replace(self, events=(*kept, event)[-EVENTS_KEPT:])
