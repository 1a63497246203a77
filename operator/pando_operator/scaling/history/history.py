"""What decisions remember: an explicit value that each decision reads and returns changed.

All of it is bounded. A restart of the operator loses samples and counters, so averages and trends
start again; the rest is small enough for a WorkerPool's status.
"""

from dataclasses import dataclass, replace

from pando_operator.scaling.history.pace import NOTHING_LEARNED, Pace, Tally

SAMPLES_KEPT = 720
"""Limit above which every other sample of the older half is dropped."""

COUNTERS_KEPT = 1024
EVENTS_KEPT = 256
USAGE_KEPT = 64
KEPT_S = 3600.0
"""How long recommendations and events are kept: the longest window or period."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A size before stabilization."""

    at_s: float
    replicas: int


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """A change of the pool's size; `by` names the proposal that caused it."""

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
    """One observation of a pool, summed over the replicas that take requests."""

    at_s: float
    pinned_tokens: int
    waiting_tokens: int  # prompt and expected output, of replicas and routers
    release_tokens_per_s: float
    queue_wait_s: float  # for a place by routers, or until the prompts in workers are computed
    running: int = 0  # requests
    computed_per_s: float = 0.0  # uncached prompt tokens
    decoded_per_s: float = 0.0  # output tokens
    decoding: float = 0.0  # requests that decode, by the time of their tokens
    place_wait_s: float = 0.0  # until those that wait in workers have had a place, as requests end
    # Of crowded replicas: some requests run there, and at least as many wait there or for it.
    crowded_pinned_tokens: int
    crowded_room_tokens: int  # their capacity
    hot_evicted_tokens: int  # since the first sample
    capacity_tokens: int
    replicas: int  # how many are summed here

    @property
    def demand_tokens(self) -> int:
        return self.pinned_tokens + self.waiting_tokens

    @property
    def is_crowded(self) -> bool:
        """Whether it shows the usable share: at least half of the capacity must be crowded."""
        return 0 < self.capacity_tokens <= 2 * self.crowded_room_tokens


@dataclass(frozen=True, slots=True)
class Counter:
    """The counters of one incarnation of a replica."""

    incarnation: str
    prompt_tokens: int
    hot_evicted_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Oldest entries first."""

    samples: tuple[Sample, ...] = ()
    counters: tuple[Counter, ...] = ()  # of the replicas last seen
    # Only the recommendations that can still be the highest, or lowest, of some window. `highs`
    # fall and `lows` rise, so neither is longer than the number of different sizes.
    highs: tuple[Recommendation, ...] = ()
    lows: tuple[Recommendation, ...] = ()
    events: tuple[ScaleEvent, ...] = ()
    last_busy_s: float | None = None
    starting_since_s: float | None = None  # replicas exist since then, and none was ready
    panic_at_s: float | None = None  # when demand was last above the threshold
    panic_replicas: int = 0  # the largest size wanted in this panic
    usage: tuple[Usage, ...] = ()
    seen_s: float | None = None  # usage is counted up to here
    capacity_tokens: int = 0  # of a replica, as last seen
    residence_s: float | None = None  # how long a token stays pinned, smoothed
    tallies: tuple[Tally, ...] = ()  # of the replicas last seen
    pace: Pace = NOTHING_LEARNED
    usable_share: float = 1.0  # share of its capacity that a replica fills while requests wait

    @property
    def usable_tokens(self) -> float:
        """KV tokens of a replica that running requests can fill."""
        return self.usable_share * self.capacity_tokens

    def recommended(self, now_s: float, replicas: int) -> "History":
        """With one more recommendation."""
        new = Recommendation(now_s, replicas)
        oldest = now_s - KEPT_S
        highs = [r for r in self.highs if r.replicas > replicas and r.at_s > oldest]
        lows = [r for r in self.lows if r.replicas < replicas and r.at_s > oldest]
        return replace(self, highs=(*highs, new), lows=(*lows, new))

    def scaled(self, now_s: float, before: int, after: int, by: str | None) -> "History":
        """With one more change of size, after the caller carried it out."""
        kept = [event for event in self.events if event.at_s > now_s - KEPT_S]
        event = ScaleEvent(now_s, before, after, by or "")
        return replace(self, events=(*kept, event)[-EVENTS_KEPT:])
