"""`status` of a WorkerPool: what the operator sees, wants and remembers.

It holds all that `decide` needs after a restart of the operator. The code that writes a list limits
its length. Times are RFC 3339 in UTC.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from pando_operator.resource.adapters import AdapterStatus
from pando_operator.resource.base import ListMap, Opaque, StatusPart

DECISIONS_KEPT = 10
MESSAGE_CHARS = 32_768


class ConditionType(StrEnum):
    READY = "Ready"
    AVAILABLE = "Available"
    PROGRESSING = "Progressing"
    SCALING_ACTIVE = "ScalingActive"
    SCALING_LIMITED = "ScalingLimited"
    ADAPTERS_READY = "AdaptersReady"
    DEGRADED = "Degraded"
    STALLED = "Stalled"
    TUNED_FOR_OTHER_TRAFFIC = "TunedForOtherTraffic"


class Condition(StatusPart):
    """A condition in the form of Kubernetes' own."""

    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    observed_generation: Annotated[int, Field(ge=0)] = 0
    last_transition_time: datetime
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    message: Annotated[str, Field(max_length=MESSAGE_CHARS)] = ""


class DecisionRecord(StatusPart):
    """One change of the desired size."""

    time: datetime
    from_replicas: Annotated[int, Field(ge=0)]
    to_replicas: Annotated[int, Field(ge=0)]
    reason: str
    limited_by: str = ""  # the limit that changed the number; "": none
    pressure: float | None = None


class ShadowResult(StatusPart):
    """What a shadow policy would do now."""

    name: str
    desired: Annotated[int, Field(ge=0)]
    reason: str
    replica_hours: Annotated[
        float,
        Field(ge=0, description="what it would have cost since it was first evaluated"),
        PlainSerializer(lambda hours: round(hours, 4)),
    ] = 0.0
    since: datetime | None = None


class TrafficDay(StatusPart):
    """What the pool's workers have computed in a day, so far."""

    since: datetime
    until: datetime
    requests: Annotated[int, Field(ge=0)] = 0
    prompt_tokens: Annotated[int, Field(ge=0)] = 0
    cached_tokens: Annotated[int, Field(ge=0)] = 0
    output_tokens: Annotated[int, Field(ge=0)] = 0


class TuningStatus(StatusPart):
    """The traffic that the pool's scaling was tuned on, and today's."""

    trace: str
    date: Annotated[str, Field(description="of the search, such as 2026-11-26")]
    day: TrafficDay
    other_since: Annotated[
        datetime | None, Field(description="since when each day's traffic was another one")
    ] = None
    other: Annotated[str, Field(description="how it differed on the last whole day")] = ""


class WorkerPoolStatus(StatusPart):
    observed_generation: Annotated[
        int, Field(ge=0, description="the generation of the spec that this status describes")
    ] = 0
    replicas: Annotated[int, Field(ge=0, description="existing pods")] = 0
    ready_replicas: Annotated[int, Field(ge=0, description="pods that take requests")] = 0
    updated_replicas: Annotated[
        int, Field(ge=0, description="of these, pods of the current template")
    ] = 0
    starting_replicas: Annotated[int, Field(ge=0, description="pods that do not yet")] = 0
    stalled_replicas: Annotated[int, Field(ge=0, description="pods with a stalled engine")] = 0
    draining_replicas: Annotated[int, Field(ge=0, description="pods that are leaving")] = 0
    selector: Annotated[
        str, Field(description="selects the pool's pods, for the scale subresource")
    ] = ""
    desired: Annotated[int | None, Field(ge=0, description="pods that the pool should have")] = None
    pressure: Annotated[
        float | None, Field(ge=0, description="KV pressure; absent while no replica is ready")
    ] = None
    reason: Annotated[str, Field(description="why desired is this number")] = ""
    recommended: Annotated[
        int | None, Field(ge=0, description="what Auto would choose, in mode Recommend")
    ] = None
    conditions: Annotated[tuple[Condition, ...], ListMap("type")] = ()
    decisions: Annotated[
        tuple[DecisionRecord, ...], Field(description="the last changes, newest first")
    ] = ()
    shadows: tuple[ShadowResult, ...] = ()
    adapters: Annotated[
        tuple[AdapterStatus, ...],
        ListMap("name"),
        Field(description="each adapter of the spec, and those that are being removed"),
    ] = ()
    adapters_ready: Annotated[
        str, Field(description="adapters that all replicas have, of those in the spec, such as 2/3")
    ] = ""
    tuning: Annotated[
        TuningStatus | None,
        Field(description="what the annotation pando.dev/tuned-on says, compared with the traffic"),
    ] = None
    start_seconds: Annotated[
        tuple[float, ...],
        Field(description="seconds from decision to ready of the last replicas, newest last"),
    ] = ()
    history: Annotated[
        dict[str, Any],
        Opaque(),
        Field(description="what decisions remember, kept for restarts of the operator"),
    ] = Field(default_factory=dict)
