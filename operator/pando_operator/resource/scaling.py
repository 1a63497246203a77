"""`spec.scaling` of a WorkerPool: its policy, its mode, and how replicas join and leave."""

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
        Field(ge=1, le=86_400, description="longest wait for the requests of a leaving replica"),
    ] = 300
    hand_off_tokens: Annotated[
        int,
        Field(
            ge=0,
            description="most prompt tokens that other replicas compute to keep the hottest"
            " prefixes that only the leaving replica holds; 0: none",
        ),
    ] = 65_536


class Warm(SpecPart):
    tokens: Annotated[
        int,
        Field(
            ge=0,
            description="most prompt tokens, of the pool's hottest prefixes, that a new replica"
            " computes before its first request; 0: none",
        ),
    ] = 65_536
    timeout_seconds: Annotated[
        int, Field(ge=1, le=3600, description="longest time that warming delays a new replica")
    ] = 60


class ShadowPolicy(ScalingPolicy):
    """Decides from the same signals as the acting policy; only the status shows its result."""

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
            " replicas follow spec.replicas; after Auto it keeps the last size unless the same"
            " change sets it. Recommend: like Manual, and the status shows what Auto would do"
        ),
    ] = Mode.AUTO
    priority: Annotated[
        int,
        Field(
            ge=-1_000_000,
            le=1_000_000,
            description="where the operator has a budget of GPUs: pools of a higher priority get"
            " all that they want before others get more than their fewest replicas",
        ),
    ] = 0
    drain: Annotated[Drain, Field(description="how a replica leaves")] = Drain()
    warm: Annotated[Warm, Field(description="how a replica joins")] = Warm()
    shadow_policies: Annotated[
        tuple[ShadowPolicy, ...],
        ListMap("name"),
        Field(max_length=8, description="policies to try without effect on the pool"),
    ] = ()
