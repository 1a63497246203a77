"""What a pool's owner asks for: `spec.scaling` without what only the controller needs.

`behavior` has the words and meanings of HorizontalPodAutoscaler v2, `panic` those of Knative's
autoscaler. Defaults are theirs.
"""

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """One direction."""

    stabilization_window_s: float
    select_policy: SelectPolicy = SelectPolicy.MAX
    policies: tuple[RatePolicy, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Panic:
    window_s: float = 6.0
    threshold: float = 2.0  # wanted over ready replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """From each time that `cron` names, in `time_zone`, for `duration_s`."""

    cron: str
    duration_s: float
    time_zone: str = "UTC"
    min_replicas: int | None = None
    max_replicas: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    replica_hours: float
    period_hours: float = 24.0


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
