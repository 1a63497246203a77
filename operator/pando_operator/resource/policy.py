"""What a pool's owner asks of `decide`: the part of `spec.scaling` that is a policy.

`behavior` has the words and meanings of HorizontalPodAutoscaler v2, `panic` those of Knative.
Where a default is given, it is theirs. Times are in seconds.
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
            description="KV tokens that running requests hold and waiting ones will need, as a"
            " share of the capacity of all ready replicas, at which the pool has the right size",
        ),
    ] = 0.7
    queue_wait_seconds: Annotated[
        float | None,
        Field(
            gt=0,
            description="time until a waiting request is placed or computed, above which"
            " the pool grows; not looked at by default",
        ),
    ] = None
    hot_evictions_per_second: Annotated[
        float | None,
        Field(
            gt=0,
            description="cached tokens that a replica drops each second though they are"
            " asked for again soon, above which the pool grows; not looked at by default",
        ),
    ] = None


class RatePolicy(SpecPart):
    """At most `value` replicas, or percent of them, change within `periodSeconds`."""

    type: Annotated[PolicyType, Field(description="what value counts")]
    value: Annotated[int, Field(ge=1, description="replicas, or percent of the replicas")]
    period_seconds: Annotated[
        int, Field(ge=1, le=1800, description="the time that the change is counted over")
    ]


class ScalingRules(SpecPart):
    """One direction."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)]
    select_policy: Annotated[
        SelectPolicy, Field(description="which policy counts; Disabled: never in this direction")
    ] = SelectPolicy.MAX
    policies: Annotated[tuple[RatePolicy, ...], Field(min_length=1, max_length=16)]


class ScaleUp(ScalingRules):
    stabilization_window_seconds: Annotated[
        int,
        Field(ge=0, le=3600, description="the lowest recommendation of so long a time counts"),
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
        Field(ge=0, le=3600, description="the highest recommendation of so long a time counts"),
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
        int, Field(ge=1, le=600, description="the short time over which demand is looked at")
    ] = 6
    threshold: Annotated[
        float,
        Field(
            gt=1,
            description="demand over this window, as a multiple of what the ready replicas"
            " are meant to carry, from which on the pool only grows",
        ),
    ] = 2.0


def _with_meaning(cron: str) -> str:
    try:
        CronSim(cron, datetime(2020, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        right = "a cron expression of five fields, such as '0 8 * * MON-FRI'"
        raise ValueError(f"must be {right}, not {cron!r} ({error})") from None
    return cron


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # a bad name, a folder's, one that is not there
        right = "an IANA time zone, such as Europe/Berlin"
        raise ValueError(f"must be {right}, not {name!r}") from None
    return name


class Schedule(SpecPart):
    """Bounds that hold for a time after each moment that `cron` names."""

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
            description="minute, hour, day, month and weekday at which it begins",
        ),
        AfterValidator(_with_meaning),
    ]
    duration_seconds: Annotated[int, Field(ge=60, le=604_800, description="how long it lasts")]
    time_zone: Annotated[
        str,
        Field(min_length=1, max_length=64, description="IANA name, such as Europe/Berlin"),
        AfterValidator(_known_zone),
    ] = "UTC"
    min_replicas: Annotated[
        int | None, Field(ge=0, description="instead of scaling.minReplicas")
    ] = None
    max_replicas: Annotated[
        int | None, Field(ge=1, description="instead of scaling.maxReplicas")
    ] = None


class Budget(SpecPart):
    replica_hours: Annotated[
        float, Field(gt=0, description="hours of replicas that a period may cost")
    ]
    period_hours: Annotated[
        float, Field(gt=0, le=744, description="length of the period, which slides")
    ] = 24.0


_MAY_SLEEP = (
    "(self.minReplicas == 0 || (has(self.schedules) &&"
    " self.schedules.exists(s, has(s.minReplicas) && s.minReplicas == 0)))"
)


class ScalingPolicy(SpecPart):
    """What `decide` reads; a shadow policy may change each of it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "maxReplicas",
            "must be at least minReplicas",
            "!has(self.maxReplicas) || self.maxReplicas >= self.minReplicas",
        ),
        Rule(
            "idleSeconds",
            "is required where minReplicas is 0: after that time without requests the pool goes to"
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
            "must be enough for minReplicas over periodHours",
            "!has(self.budget)"
            " || self.budget.replicaHours >= double(self.minReplicas) * self.budget.periodHours",
        ),
    )

    min_replicas: Annotated[int, Field(ge=0, le=MOST_REPLICAS, description="fewest replicas")] = 1
    max_replicas: Annotated[
        int | None,
        Field(ge=1, le=MOST_REPLICAS, description="most replicas; needed unless mode is Manual"),
    ] = None
    target: Annotated[Target, Field(description="what the pool is held at")] = Target()
    tolerance: Annotated[
        float,
        Field(
            ge=0,
            lt=1,
            description="distance from the target, as a share of it, at which nothing changes",
        ),
    ] = 0.1
    window_seconds: Annotated[
        int, Field(ge=1, le=3600, description="the time over which signals are averaged")
    ] = 30
    behavior: Annotated[Behavior, Field(description="how fast it follows")] = Behavior()
    panic: Annotated[
        Panic | None, Field(description="fast growth on a sudden rise; off by default")
    ] = None
    idle_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=604_800,
            description="time without requests after which the pool goes to"
            " zero; needed where minReplicas is 0",
        ),
    ] = None
    schedules: Annotated[
        tuple[Schedule, ...],
        Field(
            max_length=32,
            description="other bounds at some times; of several that hold, the highest count",
        ),
    ] = ()
    budget: Annotated[Budget | None, Field(description="most replica hours in a period")] = None

    @property
    def most_replicas(self) -> int:
        """`max_replicas`, or all that a pool may have: in mode Manual it can be left out."""
        return MOST_REPLICAS if self.max_replicas is None else self.max_replicas
