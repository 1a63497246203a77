"""The scaling policy that `decide` follows: a part of `spec.scaling`.

`behavior` has the names, meanings and defaults of HorizontalPodAutoscaler v2, `panic` those of
Knative; `scaling/limits/behavior.py` decides by the windows. Times are in seconds.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, ClassVar
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field

from pando_operator.resource.base import SpecPart
from pando_operator.resource.rules import Rule

MOST_REPLICAS = 1000

START_LIMIT_S = 7_200
"""Longest time that a worker may take to fetch and load its model."""


class SelectPolicy(StrEnum):
    MAX = "Max"  # the policy that allows the greatest change
    MIN = "Min"  # the one that allows the smallest
    DISABLED = "Disabled"  # no change in this direction


class PolicyType(StrEnum):
    PODS = "Pods"
    PERCENT = "Percent"


class Target(SpecPart):
    pressure: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="desired KV pressure: tokens that running requests hold and waiting ones"
            " will need, as a share of the capacity of all ready replicas",
        ),
    ] = 0.7
    queue_wait_seconds: Annotated[
        float | None,
        Field(
            gt=0,
            description="the pool grows if requests wait longer than this to be placed or"
            " computed; ignored by default",
        ),
    ] = None
    hot_evictions_per_second: Annotated[
        float | None,
        Field(
            gt=0,
            description="the pool grows if each replica evicts more cached tokens per second that"
            " are soon needed again; ignored by default",
        ),
    ] = None
    ttft_seconds: Annotated[
        float | None,
        Field(
            gt=0,
            description="the pool is at least so large that first tokens come within this time, as"
            " predicted from what its replicas were measured to do; ignored by default",
        ),
    ] = None
    inter_token_seconds: Annotated[
        float | None,
        Field(
            gt=0,
            description="the same for the time between two tokens of an answer; ignored by default",
        ),
    ] = None
    percentile: Annotated[
        float,
        Field(
            ge=50,
            lt=100,
            description="percentage of requests, or of tokens, that ttftSeconds and"
            " interTokenSeconds are for",
        ),
    ] = 95.0


class RatePolicy(SpecPart):
    """Allows a change of at most `value` replicas, or percent, within `periodSeconds`."""

    type: Annotated[PolicyType, Field(description="unit of value")]
    value: Annotated[int, Field(ge=1, description="replicas, or percent of the replicas")]
    period_seconds: Annotated[
        int, Field(ge=1, le=1800, description="period in which the change is counted")
    ]


class ScalingRules(SpecPart):
    """The rules of one direction."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)]
    select_policy: Annotated[
        SelectPolicy,
        Field(description="which policy applies; Disabled: no change in this direction"),
    ] = SelectPolicy.MAX
    policies: Annotated[tuple[RatePolicy, ...], Field(min_length=1, max_length=16)]


class ScaleUp(ScalingRules):
    stabilization_window_seconds: Annotated[
        int,
        Field(ge=0, le=3600, description="the lowest recommendation of this period applies"),
    ] = 0
    policies: Annotated[
        tuple[RatePolicy, ...],
        Field(min_length=1, max_length=16, description="how fast the pool may grow"),
    ] = (
        RatePolicy(type=PolicyType.PERCENT, value=100, period_seconds=15),
        RatePolicy(type=PolicyType.PODS, value=4, period_seconds=15),
    )


class ScaleDown(ScalingRules):
    stabilization_window_seconds: Annotated[
        int,
        Field(ge=0, le=3600, description="the highest recommendation of this period applies"),
    ] = 300
    policies: Annotated[
        tuple[RatePolicy, ...],
        Field(min_length=1, max_length=16, description="how fast the pool may shrink"),
    ] = (RatePolicy(type=PolicyType.PERCENT, value=100, period_seconds=15),)


class Behavior(SpecPart):
    scale_up: Annotated[ScaleUp, Field(description="how the pool grows")] = ScaleUp()
    scale_down: Annotated[ScaleDown, Field(description="how the pool shrinks")] = ScaleDown()


class Panic(SpecPart):
    window_seconds: Annotated[
        int, Field(ge=1, le=600, description="the short window over which demand is averaged")
    ] = 6
    threshold: Annotated[
        float,
        Field(
            gt=1,
            description="the pool only grows while the demand of this window is at least this"
            " multiple of what the ready replicas should carry",
        ),
    ] = 2.0


def _with_meaning(cron: str) -> str:
    try:
        CronSim(cron, datetime(2020, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        right = "a cron expression of five fields, such as '0 8 * * MON-FRI'"
        raise ValueError(f"must be {right}, not {cron!r} ({error})") from None
    return cron


def known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # a bad name, the name of a folder, an unknown name
        right = "an IANA time zone, such as Europe/Berlin"
        raise ValueError(f"must be {right}, not {name!r}") from None
    return name


class Schedule(SpecPart):
    """Bounds that apply for some time after each moment that `cron` names."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "",
            "needs minReplicas or maxReplicas",
            "has(self.minReplicas) || has(self.maxReplicas)",
        ),
        Rule(
            "maxReplicas",
            "must be at least its minReplicas",
            "!has(self.minReplicas) || !has(self.maxReplicas)"
            " || self.maxReplicas >= self.minReplicas",
        ),
    )

    cron: Annotated[
        str,
        Field(
            pattern=r"^(\S+ +){4}\S+$",
            max_length=200,
            description="when it begins: minute, hour, day of month, month and weekday",
        ),
        AfterValidator(_with_meaning),
    ]
    duration_seconds: Annotated[int, Field(ge=60, le=604_800, description="how long it lasts")]
    time_zone: Annotated[
        str,
        Field(min_length=1, max_length=64, description="IANA name, such as Europe/Berlin"),
        AfterValidator(known_zone),
    ] = "UTC"
    min_replicas: Annotated[int | None, Field(ge=0, description="replaces scaling.minReplicas")] = (
        None
    )
    max_replicas: Annotated[int | None, Field(ge=1, description="replaces scaling.maxReplicas")] = (
        None
    )


class Budget(SpecPart):
    replica_hours: Annotated[
        float, Field(gt=0, description="most replica-hours that a period may cost")
    ]
    period_hours: Annotated[
        float, Field(gt=0, le=744, description="length of the sliding period")
    ] = 24.0


_MAY_SLEEP = (
    "(self.minReplicas == 0 || (has(self.schedules) &&"
    " self.schedules.exists(s, has(s.minReplicas) && s.minReplicas == 0)))"
)


class ScalingPolicy(SpecPart):
    """What `decide` reads; a shadow policy has the same fields."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "maxReplicas",
            "must be at least minReplicas",
            "!has(self.maxReplicas) || self.maxReplicas >= self.minReplicas",
        ),
        Rule(
            "schedules[].minReplicas",
            "must be at most scaling.maxReplicas, unless the schedule has a maxReplicas of its own",
            "!has(self.maxReplicas) || !has(self.schedules) || self.schedules.all(s,"
            " !has(s.minReplicas) || has(s.maxReplicas) || s.minReplicas <= self.maxReplicas)",
        ),
        Rule(
            "idleSeconds",
            "is required if minReplicas is 0: after that time without requests the pool scales to"
            " zero",
            f"!{_MAY_SLEEP} || has(self.idleSeconds)",
        ),
        Rule(
            "idleSeconds",
            "has no effect unless minReplicas, or that of a schedule, is 0",
            f"!has(self.idleSeconds) || {_MAY_SLEEP}",
        ),
        Rule(
            "budget.replicaHours",
            "must pay for minReplicas over periodHours",
            "!has(self.budget)"
            " || self.budget.replicaHours >= double(self.minReplicas) * self.budget.periodHours",
        ),
    )

    min_replicas: Annotated[int, Field(ge=0, le=MOST_REPLICAS, description="fewest replicas")] = 1
    max_replicas: Annotated[
        int | None,
        Field(ge=1, le=MOST_REPLICAS, description="most replicas; required unless mode is Manual"),
    ] = None
    target: Annotated[Target, Field(description="the load that the pool aims for")] = Target()
    tolerance: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            description="largest distance from the target, as a share of it, that changes nothing",
        ),
    ] = 0.1
    window_seconds: Annotated[
        int, Field(ge=1, le=3600, description="window over which signals are averaged")
    ] = 30
    behavior: Annotated[Behavior, Field(description="how fast the pool may change")] = Behavior()
    panic: Annotated[
        Panic | None, Field(description="fast growth on a sudden rise; off by default")
    ] = None
    idle_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=604_800,
            description="time without requests after which the pool scales to zero; required if"
            " minReplicas is 0",
        ),
    ] = None
    schedules: Annotated[
        tuple[Schedule, ...],
        Field(
            max_length=32,
            description="other bounds at certain times; of several that apply, the highest wins",
        ),
    ] = ()
    budget: Annotated[Budget | None, Field(description="limit on replica-hours")] = None

    @property
    def most_replicas(self) -> int:
        """`max_replicas`, or the limit of any pool, since mode Manual does not require it."""
        return MOST_REPLICAS if self.max_replicas is None else self.max_replicas
