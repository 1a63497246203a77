"""`spec.scaling` of a WorkerPool: when replicas are added and removed, and how.

`behavior` has the words and meanings of HorizontalPodAutoscaler v2, `panic` those of Knative.
Where a default is given, it is theirs. Times are in seconds.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from pando_operator.resource.base import ListMap, SpecPart


class Mode(StrEnum):
    AUTO = "Auto"
    MANUAL = "Manual"
    RECOMMEND = "Recommend"


class SelectPolicy(StrEnum):
    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


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


class ScaleUp(SpecPart):
    stabilization_window_seconds: Annotated[
        int,
        Field(ge=0, le=3600, description="the lowest recommendation of so long a time counts"),
    ] = 0
    select_policy: Annotated[
        SelectPolicy, Field(description="which policy counts; Disabled: never in this direction")
    ] = SelectPolicy.MAX
    policies: Annotated[
        tuple[RatePolicy, ...],
        Field(min_length=1, max_length=16, description="how fast the pool may grow"),
    ] = (
        RatePolicy(type=PolicyType.PERCENT, value=100, period_seconds=15),
        RatePolicy(type=PolicyType.PODS, value=4, period_seconds=15),
    )


class ScaleDown(SpecPart):
    stabilization_window_seconds: Annotated[
        int,
        Field(ge=0, le=3600, description="the highest recommendation of so long a time counts"),
    ] = 300
    select_policy: Annotated[
        SelectPolicy, Field(description="which policy counts; Disabled: never in this direction")
    ] = SelectPolicy.MAX
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


class Schedule(SpecPart):
    """Bounds that hold for a time after each moment that `cron` names."""

    cron: Annotated[
        str,
        Field(
            pattern=r"^(\S+ +){4}\S+$",
            max_length=200,
            description="minute, hour, day, month and weekday at which it begins",
        ),
    ]
    duration_seconds: Annotated[int, Field(ge=60, le=604_800, description="how long it lasts")]
    time_zone: Annotated[
        str, Field(min_length=1, max_length=64, description="IANA name, such as Europe/Berlin")
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


class Drain(SpecPart):
    timeout_seconds: Annotated[
        int,
        Field(ge=1, le=86_400, description="time for the requests of a replica that leaves"),
    ] = 300
    hand_off_tokens: Annotated[
        int,
        Field(
            ge=0,
            description="prompt tokens that may be computed elsewhere to keep the hottest"
            " prefixes that only the leaving replica holds; 0: none",
        ),
    ] = 65_536


class Warm(SpecPart):
    tokens: Annotated[
        int,
        Field(
            ge=0,
            description="prompt tokens of the pool's hottest prefixes that a new replica"
            " computes before its first request; 0: none",
        ),
    ] = 65_536
    timeout_seconds: Annotated[
        int, Field(ge=1, le=3600, description="longest time that this keeps a replica from work")
    ] = 60


class PolicyFields(SpecPart):
    """What `decide` needs; a shadow policy may change each of it."""

    min_replicas: Annotated[int, Field(ge=0, le=1000, description="fewest replicas")] = 1
    max_replicas: Annotated[
        int | None,
        Field(ge=1, le=1000, description="most replicas; needed unless mode is Manual"),
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


class ShadowPolicy(PolicyFields):
    """Decides beside the acting policy on the same signals; only the status shows what."""

    name: Annotated[str, Field(min_length=1, max_length=63, description="its name in the status")]


class Scaling(PolicyFields):
    mode: Annotated[
        Mode,
        Field(
            description="Auto: replicas follow the load, and spec.replicas follows them. Manual:"
            " they follow spec.replicas, which is the size that Auto left unless the same change"
            " gives it. Recommend: as Manual, and the status tells what Auto would do"
        ),
    ] = Mode.AUTO
    drain: Annotated[Drain, Field(description="how a replica leaves")] = Drain()
    warm: Annotated[Warm, Field(description="how a replica joins")] = Warm()
    shadow_policies: Annotated[
        tuple[ShadowPolicy, ...],
        ListMap("name"),
        Field(max_length=8, description="policies that are tried without acting"),
    ] = ()
