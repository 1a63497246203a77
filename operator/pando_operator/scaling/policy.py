"""What a pool's owner asks for: `spec.scaling` without what only the controller needs.

`behavior` has the words and meanings of HorizontalPodAutoscaler v2, `panic` those of Knative's
autoscaler; defaults are theirs. What could make a decision fail raises ValueError here.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

LONGEST_S = 3600.0
"""Of windows and periods that look back."""


def _check(is_right: bool, what: str, value: object, right: str) -> None:
    if not is_right:
        raise ValueError(f"{what} must be {right}, not {value}")


class SelectPolicy(StrEnum):
    MAX = "Max"  # the policy that allows the greatest change
    MIN = "Min"  # the one that allows the smallest
    DISABLED = "Disabled"  # no change in this direction


class PolicyType(StrEnum):
    PODS = "Pods"
    PERCENT = "Percent"


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """At most `value` replicas, or percent of those at the period's start, in `period_s`."""

    type: PolicyType
    value: int
    period_s: float

    def __post_init__(self) -> None:
        _check(self.value > 0, "a rate policy's value", self.value, "above 0")
        _check(0 < self.period_s <= LONGEST_S, "a rate's period", self.period_s, "1 to 3600 s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """One direction."""

    stabilization_window_s: float
    select_policy: SelectPolicy = SelectPolicy.MAX
    policies: tuple[RatePolicy, ...]

    def __post_init__(self) -> None:
        window_s = self.stabilization_window_s
        _check(0 <= window_s <= LONGEST_S, "a stabilization window", window_s, "0 to 3600 s")
        _check(bool(self.policies), "the rate policies", "none", "one at least")


SCALE_UP = ScalingRules(
    stabilization_window_s=0.0,
    policies=(RatePolicy(PolicyType.PERCENT, 100, 15.0), RatePolicy(PolicyType.PODS, 4, 15.0)),
)
SCALE_DOWN = ScalingRules(
    stabilization_window_s=300.0, policies=(RatePolicy(PolicyType.PERCENT, 100, 15.0),)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    pressure: float = 0.7
    queue_wait_s: float | None = None  # None: not looked at
    hot_evictions_per_s: float | None = None  # tokens a second and replica; None: not looked at

    def __post_init__(self) -> None:
        _check(self.pressure > 0, "the target pressure", self.pressure, "above 0")
        for value in (self.queue_wait_s, self.hot_evictions_per_s):
            _check(value is None or value > 0, "a target", value, "above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panic:
    window_s: float = 6.0
    threshold: float = 2.0  # wanted over ready replicas

    def __post_init__(self) -> None:
        _check(self.window_s > 0, "the panic window", self.window_s, "above 0 s")
        _check(self.threshold > 1, "the panic threshold", self.threshold, "above 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """From each time that `cron` names, in `time_zone`, for `duration_s`."""

    cron: str
    duration_s: float
    time_zone: str = "UTC"
    min_replicas: int | None = None
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        _check(self.duration_s > 0, "a schedule's duration", self.duration_s, "above 0 s")
        try:
            ZoneInfo(self.time_zone)
        except (OSError, ValueError, KeyError):  # a bad name, a folder's, an unknown one
            _check(False, "a schedule's time zone", self.time_zone, "one such as Europe/Berlin")
        try:
            CronSim(self.cron, datetime.now(UTC))
        except CronSimError as error:
            _check(False, "a schedule's cron line", f"{self.cron!r} ({error})", "as '0 8 * * 1-5'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    replica_hours: float
    period_hours: float = 24.0

    def __post_init__(self) -> None:
        _check(self.replica_hours > 0, "the budget", self.replica_hours, "above 0 hours")
        _check(self.period_hours > 0, "the budget's period", self.period_hours, "above 0 hours")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    min_replicas: int = 1
    max_replicas: int
    target: Target = Target()
    tolerance: float = 0.1  # share of the target
    window_s: float = 30.0  # the stable window: over which signals are averaged
    scale_up: ScalingRules = SCALE_UP
    scale_down: ScalingRules = SCALE_DOWN
    panic: Panic | None = None
    idle_s: float | None = None  # None: never to zero
    schedules: tuple[Schedule, ...] = ()
    budget: Budget | None = None

    def __post_init__(self) -> None:
        _check(self.min_replicas >= 0, "minReplicas", self.min_replicas, "0 or more")
        most = self.max_replicas
        _check(most >= max(1, self.min_replicas), "maxReplicas", most, "minReplicas or more")
        _check(0 <= self.tolerance < 1, "the tolerance", self.tolerance, "0 or more and below 1")
        _check(self.window_s > 0, "the stable window", self.window_s, "above 0 s")
        _check(self.idle_s is None or self.idle_s > 0, "idleSeconds", self.idle_s, "above 0 s")
