"""Carries out a plan's actions in order and stops at the first that fails.

Earlier actions are not undone: the next reconcile sees their effect and plans from there.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime

from pando_fleet.records.marks import Marks
from pando_operator.controller.observing.watch_caches import WatchCaches
from pando_operator.kube.client import Kube
from pando_operator.kube.errors import NotFound
from pando_operator.kube.resources import DEPLOYMENTS, MANAGER, PODS, SCALER, Key, Object
from pando_operator.lifecycle.actions import (
    Action,
    Annotate,
    ClearMark,
    SetGate,
    SetMark,
    SetReplicas,
)
from pando_operator.lifecycle.pods import GATE

log = logging.getLogger("pando.operator")


class Executor:
    """Carries out the plans of one pool. Raises KubeError and FleetError."""

    def __init__(
        self,
        kube: Kube,
        caches: WatchCaches,
        marks: Marks,
        pool: Key,
        did: Callable[[str], None],
    ) -> None:
        self._kube, self._caches, self._marks, self._pool = kube, caches, marks, pool
        self._did = did

    async def execute(self, actions: Iterable[Action]) -> None:
        for action in actions:
            extra = {"pool": str(self._pool), "action": str(action)}
            log.info("acting", extra=extra)
            await self._one(action)
            self._did(type(action).__name__)

    async def scale(self, replicas: int) -> None:
        """Set the number of pods. Nothing else writes `replicas`.

        Raises Conflict, instead of lowering it, if the Deployment has changed since it was seen:
        such a write may be an old one of an operator that no longer leads.
        """
        metadata = {"name": self._pool.name, "namespace": self._pool.namespace}
        there = self._caches.deployment(self._pool)
        if there is not None and replicas < there["spec"].get("replicas", 0):
            metadata["resourceVersion"] = there["metadata"]["resourceVersion"]
        body = {"metadata": metadata, "spec": {"replicas": replicas}}
        self._caches.adopt(DEPLOYMENTS, await self._kube.apply(DEPLOYMENTS, body, manager=SCALER))

    async def _one(self, action: Action) -> None:
        match action:
            case SetMark(kind, replica, lasts_ms, budget_tokens):
                await self._marks.set(kind, replica, lasts_ms=lasts_ms, budget_tokens=budget_tokens)
            case ClearMark(kind, replica):
                await self._marks.clear(kind, replica)
            case Annotate(pod, uid, annotations):
                metadata = {"uid": uid, "annotations": dict(annotations)}
                await self._patch(pod, {"metadata": metadata})
            case SetGate(pod, uid):
                await self._patch(pod, _gate(action, uid), "status")
            case SetReplicas(replicas):
                await self.scale(replicas)

    async def _patch(self, pod: str, body: Object, subresource: str = "") -> None:
        """The uid in `body` makes the API server refuse to patch another pod of this name."""
        with suppress(NotFound):  # a deleted pod needs no patch
            written = await self._kube.patch(
                PODS,
                Key(self._pool.namespace, pod),
                body,
                manager=MANAGER,
                kind="strategic-merge",
                subresource=subresource,
            )
            self._caches.adopt(PODS, written)


def _gate(action: SetGate, uid: str) -> Object:
    condition = {
        "type": GATE,
        "status": "True" if action.is_open else "False",
        "reason": action.reason,
        "message": action.message,
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
