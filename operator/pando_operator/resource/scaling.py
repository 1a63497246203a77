"""`spec.scaling` of a WorkerPool: its policy, who acts on it, and how replicas come and leave."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from pando_operator.resource.base import ListMap, SpecPart
from pando_operator.resource.policy import ScalingPolicy
from pando_operator.resource.rules import Rule


class Mode(StrEnum):
    AUTO = "Auto"
    MANUAL = "Manual"
    RECOMMEND = "Recommend"


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


class ShadowPolicy(ScalingPolicy):
    """Decides beside the acting policy on the same signals; only the status shows what."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *ScalingPolicy.rules,
        Rule("maxReplicas", "is required", "has(self.maxReplicas)"),
    )

    name: Annotated[str, Field(min_length=1, max_length=63, description="its name in the status")]


class Scaling(ScalingPolicy):
    rules: ClassVar[tuple[Rule, ...]] = (
        *ScalingPolicy.rules,
        Rule(
            "maxReplicas",
            "is required, unless mode is Manual",
            "self.mode == 'Manual' || has(self.maxReplicas)",
        ),
    )

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
