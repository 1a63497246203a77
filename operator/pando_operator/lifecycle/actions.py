"""What a plan asks for; each action may be done again without harm.

They are executed in their order, and none after one that failed: the next plan starts from what is
seen then.
"""

from dataclasses import dataclass

from pando_fleet.records.marks import MarkKind


@dataclass(frozen=True, slots=True)
class SetMark:
    """`Marks.set`: in Redis, of one replica. Its answer False (a mark is at work) is no failure."""

    kind: MarkKind
    replica: str
    lasts_ms: int
    budget_tokens: int  # 0 for a drain


@dataclass(frozen=True, slots=True)
class ClearMark:
    """`Marks.clear`."""

    kind: MarkKind
    replica: str


@dataclass(frozen=True, slots=True)
class Annotate:
    """A merge patch of the pod's annotations; None takes one away. A pod that is gone is no
    failure; one of another uid must not be touched."""

    pod: str
    uid: str
    annotations: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class SetGate:
    """The pod's condition `pods.GATE`, in its status subresource; uid as above."""

    pod: str
    uid: str
    is_open: bool
    reason: str  # CamelCase, of the condition
    message: str


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """The Deployment's `replicas`, of which the operator is the only writer."""

    replicas: int


Action = SetMark | ClearMark | Annotate | SetGate | SetReplicas
