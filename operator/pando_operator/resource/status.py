"""`status` of a WorkerPool: what the operator sees, wants and remembers.

All that `decide` needs after a restart of the operator is here. Whoever writes a list bounds it, by
the numbers below. Times are RFC 3339 in UTC.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from pando_operator.resource.base import ListMap, Opaque, StatusPart

DECISIONS_KEPT = 10
MESSAGE_CHARS = 32_768


class ConditionType(StrEnum):
    READY = "Ready"
    SCALING_ACTIVE = "ScalingActive"
    SCALING_LIMITED = "ScalingLimited"
    DEGRADED = "Degraded"


class Condition(StatusPart):
    """As Kubernetes' own conditions are."""

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
    """One change of the number that is wanted."""

    time: datetime
    from_replicas: Annotated[int, Field(ge=0)]
    to_replicas: Annotated[int, Field(ge=0)]
    reason: str
    limited_by: str = ""  # what kept it from another number; empty: nothing
    pressure: float | None = None


class ShadowResult(StatusPart):
    """What a shadow policy would do now."""

    name: str
    desired: Annotated[int, Field(ge=0)]
    reason: str
    replica_hours: Annotated[
        float,
        Field(ge=0, description="that it would have cost since it was first looked at"),
        PlainSerializer(lambda hours: round(hours, 4)),
    ] = 0.0
    since: datetime | None = None


class WorkerPoolStatus(StatusPart):
    observed_generation: Annotated[
        int, Field(ge=0, description="the generation of the spec that the rest is about")
    ] = 0
    replicas: Annotated[int, Field(ge=0, description="pods that are there")] = 0
    ready_replicas: Annotated[int, Field(ge=0, description="pods that take requests")] = 0
    starting_replicas: Annotated[int, Field(ge=0, description="pods that will")] = 0
    stalled_replicas: Annotated[int, Field(ge=0, description="pods whose engine stands still")] = 0
    draining_replicas: Annotated[int, Field(ge=0, description="pods that leave")] = 0
    selector: Annotated[str, Field(description="of the pool's pods, for the scale subresource")] = (
        ""
    )
    desired: Annotated[int | None, Field(ge=0, description="pods that are wanted")] = None
    pressure: Annotated[
        float | None, Field(ge=0, description="last seen; absent while no replica is ready")
    ] = None
    reason: Annotated[str, Field(description="why so many are wanted")] = ""
    recommended: Annotated[
        int | None, Field(ge=0, description="what Auto would want, in mode Recommend")
    ] = None
    conditions: Annotated[tuple[Condition, ...], ListMap("type")] = ()
    decisions: Annotated[
        tuple[DecisionRecord, ...], Field(description="the last changes, newest first")
    ] = ()
    shadows: tuple[ShadowResult, ...] = ()
    start_seconds: Annotated[
        tuple[float, ...],
        Field(description="time from decision to ready of the last replicas, newest last"),
    ] = ()
    history: Annotated[
        dict[str, Any],
        Opaque(),
        Field(description="what decisions look back at, kept for restarts of the operator"),
    ] = Field(default_factory=dict)
