"""Builders of pods and marks for plans, and plans in short form."""

from typing import Any

from pando_fleet.records.marks import Mark, MarkKind, MarkState
from pando_operator.lifecycle.actions import Action, SetMark
from pando_operator.lifecycle.departing import COST
from pando_operator.lifecycle.plan import plan
from pando_operator.lifecycle.pods import PodView, Standing
from pando_operator.resource.scaling import Drain, Scaling, Warm

NOW = 1_700_000_000.0
SCALING = Scaling(
    drain=Drain(timeout_seconds=300, hand_off_tokens=500), warm=Warm(tokens=400, timeout_seconds=60)
)


def pod(name: str, **fields: Any) -> PodView:
    """One that serves."""
    defaults: dict[str, Any] = {
        "uid": f"uid-{name}",
        "created": NOW - 1000,
        "standing": Standing.READY,
        "containers_ready": True,
        "gate": True,
        "ready_since": NOW - 900,
        "requests": 0,
    }
    return PodView(name=name, **{**defaults, **fields})


def starting(name: str, **fields: Any) -> PodView:
    unready: dict[str, Any] = {
        "standing": Standing.UNREADY,
        "containers_ready": False,
        "gate": False,
        "ready_since": None,
        "requests": None,
    }
    return pod(name, **{**unready, **fields})


def drained(name: str, **fields: Any) -> PodView:
    """One that has left, except for the last step."""
    left: dict[str, Any] = {
        "draining_since": NOW - 10,
        "handed_off": True,
        "gate": False,
        "standing": Standing.UNREADY,
        "deletion_cost": COST,
    }
    return pod(name, **{**left, **fields})


def mark(kind: MarkKind, name: str, **fields: Any) -> Mark:
    defaults: dict[str, Any] = {
        "budget_tokens": 0 if kind is MarkKind.DRAIN else 1,
        "left_ms": 100_000,
        "state": MarkState.OPEN,
        "router": "",
        "tokens": 0,
        "prefixes": 0,
        "reason": "",
    }
    return Mark(kind=kind, replica=name, **{**defaults, **fields})


def drain_marks(*names: str) -> list[Mark]:
    return [mark(MarkKind.DRAIN, name) for name in names]


def actions(
    pods: list[PodView],
    marks: list[Mark] | None = None,
    *,
    target: int,
    replicas: int | None = None,
    worths: dict[str, float] | None = None,
    without_redis: bool = False,
) -> list[Action]:
    return plan(
        pods,
        None if without_redis else marks or [],
        target=target,
        replicas=len(pods) if replicas is None else replicas,
        worths=worths or {},
        now=NOW,
        scaling=SCALING,
    )


def leaves(found: list[Action]) -> list[str]:
    """The replicas whose drain begins."""
    kinds = (entry for entry in found if isinstance(entry, SetMark))
    return [entry.replica for entry in kinds if entry.kind is MarkKind.DRAIN]
