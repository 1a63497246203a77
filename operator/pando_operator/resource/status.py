"""`status` of a WorkerPool: what the operator sees, wants and remembers.

All that `decide` needs after a restart of the operator is here; lists are bounded by whoever writes
them, `DECISIONS_KEPT` and the like below. Times are RFC 3339 in UTC.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from pando_operator.resource.base import StatusPart

DECISIONS_KEPT = 10
RECOMMENDATIONS_KEPT = 256
SCALE_EVENTS_KEPT = 256
STARTS_KEPT = 16


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
    message: Annotated[str, Field(max_length=32_768)] = ""


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
    ] = 0.0
    since: datetime | None = None


class Recommendation(StatusPart):
    """What was wanted before stabilization, at one moment."""

    time: datetime
    replicas: Annotated[int, Field(ge=0)]


class ScaleEvent(StatusPart):
    """A change of the pool's size; below 0 for replicas that left."""

    time: datetime
    change: int


class History(StatusPart):
    recommendations: tuple[Recommendation, ...] = ()
    scale_events: tuple[ScaleEvent, ...] = ()
    last_busy: datetime | None = None  # when a request was last seen running or waiting
    panic_since: datetime | None = None
    panic_replicas: Annotated[int, Field(ge=0)] = 0  # most that were wanted in this panic
    spent_replica_hours: Annotated[float, Field(ge=0)] = 0.0  # within the budget's period
    spent_since: datetime | None = None


class WorkerPoolStatus(StatusPart):
    observed_generation: Annotated[
        int, Field(ge=0, description="the generation of the spec that the rest is about")
    ] = 0
    replicas: Annotated[int, Field(ge=0, description="pods that are there")] = 0
    ready_replicas: Annotated[int, Field(ge=0, description="pods that take requests")] = 0
    starting_replicas: Annotated[int, Field(ge=0, description="pods that will")] = 0
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
    conditions: tuple[Condition, ...] = ()
    decisions: Annotated[
        tuple[DecisionRecord, ...], Field(description="the last changes, newest first")
    ] = ()
    shadows: tuple[ShadowResult, ...] = ()
    start_seconds: Annotated[
        tuple[float, ...],
        Field(description="time from decision to ready of the last replicas, newest last"),
    ] = ()
    history: Annotated[
        History, Field(description="what decisions look back at, kept for restarts")
    ] = History()
