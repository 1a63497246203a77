"""The actions of a plan; repeating one does no harm.

They are carried out in order, up to the first that fails: the next plan starts from what it sees
then.
"""

from dataclasses import dataclass

from pando_fleet.records.marks import MarkKind


@dataclass(frozen=True, slots=True)
class SetMark:
    """`Marks.set` for one replica, in Redis. Its answer False (such a mark is active) is no
    failure."""

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
    """A merge patch of the pod's annotations; None removes one. A deleted pod is no failure; a pod
    with another uid must not be changed."""

    pod: str
    uid: str
    annotations: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class SetGate:
    """Sets the pod's condition `pods.GATE` in its status subresource; uid as above."""

    pod: str
    uid: str
    is_open: bool
    reason: str  # CamelCase, of the condition
    message: str


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """Sets the Deployment's `replicas`; the operator is its only writer."""

    replicas: int


Action = SetMark | ClearMark | Annotate | SetGate | SetReplicas
