"""Keeps the objects that a pool owns as its spec requires: its Deployment, its Service and its
PodDisruptionBudget."""

import json
from typing import Any, NamedTuple

import xxhash

from pando_operator.controller.acting.execute import Executor
from pando_operator.controller.memory import Memory
from pando_operator.controller.observing.turns import Turns, is_by_operator
from pando_operator.controller.observing.watch_caches import WatchCaches
from pando_operator.kube.client import Kube
from pando_operator.kube.errors import FieldConflict, Forbidden, Invalid, KubeError
from pando_operator.kube.resources import (
    DEPLOYMENTS,
    MANAGER,
    SCALER,
    SERVICES,
    WORKER_POOLS,
    Key,
    Object,
    Resource,
    key_of,
)
from pando_operator.lifecycle.moving import ONLY
from pando_operator.objects.build import deployment, disruption_budget, service
from pando_operator.objects.labels import POOL_LABEL
from pando_operator.resource.pool import WorkerPool
from pando_operator.settings import OperatorSettings


class NameTaken(KubeError):  # noqa: N818  (a state of the world, not a mistake)
    """An object that the pool does not own has the name that the pool needs."""


REFUSALS = (Forbidden, Invalid, NameTaken)
"""Errors that last until a person fixes their cause: the API server's, and our own."""


class _Built(NamedTuple):
    """A pool's objects with their digests."""

    version: tuple[str, int, bool]  # uid and generation of the pool, whether its only one moves
    service: tuple[Object, str]
    budget: tuple[Object, str]
    deployment: tuple[Object, str]


class OwnedObjects:
    """The objects of one pool. Applies each once after the operator starts, then only when it
    differs from what was applied last, or when somebody else has changed it."""

    def __init__(
        self,
        kube: Kube,
        caches: WatchCaches,
        turns: Turns,
        executor: Executor,
        settings: OperatorSettings,
        key: Key,
        server_minor: int,
    ) -> None:
        self._kube, self._caches, self._turns = kube, caches, turns
        self._executor, self._settings = executor, settings
        self._key, self._server_minor = key, server_minor
        self._built: _Built | None = None

    async def apply(self, pool: WorkerPool, memory: Memory, size: int) -> int:
        """Apply all objects and return the Deployment's `replicas`; a new Deployment gets `size`.

        Raises KubeError: one of REFUSALS if only a person can fix the cause.
        """
        built = self._build(pool, moves=size == ONLY and self._caches.sees_cordons)
        await self._apply(SERVICES, *built.service, self._caches.service(self._key), memory)
        await self._apply(
            self._caches.budgets, *built.budget, self._caches.budget(self._key), memory
        )
        (wanted, digest), there = built.deployment, self._caches.deployment(self._key)
        if there is None:
            # Without a size it would start with one pod. The scaler takes the field over below.
            wanted = wanted | {"spec": wanted["spec"] | {"replicas": size}}
            created = await self._first(DEPLOYMENTS, wanted, memory)
            memory.applied(DEPLOYMENTS.kind, "", created)
            self._caches.adopt(DEPLOYMENTS, created)
            await self._executor.scale(size)
            return size
        if not _has_scaler(there):
            await self._executor.scale(replicas_of(there))
        await self._change(wanted, digest, there, memory)
        return replicas_of(there)

    async def _change(self, wanted: Object, digest: str, there: Object, memory: Memory) -> None:
        """Apply the Deployment, if need be when it is this pool's turn."""
        memory.waits_for = None
        if not is_by_operator(wanted, there):
            await self._apply(DEPLOYMENTS, wanted, digest, there, memory)
            return
        with self._turns.turn(self._key) as first:
            memory.waits_for = first
            if first is None:
                await self._apply(DEPLOYMENTS, wanted, digest, there, memory)

    async def keep_size(self, pool: WorkerPool, memory: Memory, size: int) -> None:
        """Write the decided size to `spec.replicas`, as an autoscaler does, so that the pool keeps
        its size when its mode leaves Auto. Call it before acting on the decision.

        Raises KubeError: Conflict if somebody has just changed the pool.
        """
        version = pool.metadata.resource_version
        if pool.spec.replicas == size or memory.size_kept == (version, size):
            return  # already written; the watch may not have shown it yet
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": size}}
        await self._kube.patch(WORKER_POOLS, self._key, body, manager=MANAGER, subresource="scale")
        memory.size_kept = version, size

    def _build(self, pool: WorkerPool, *, moves: bool) -> "_Built":
        """Build the objects, once for each version of the spec."""
        version = pool.metadata.uid, pool.metadata.generation, moves
        if self._built is None or self._built.version != version:
            budget = disruption_budget(pool, self._server_minor, moves=moves)
            made = service(pool), budget, deployment(pool, self._settings)
            self._built = _Built(version, *((one, _digest(one)) for one in made))
        return self._built

    async def _apply(
        self,
        resource: Resource,
        wanted: Object,
        digest: str,
        there: Object | None,
        memory: Memory,
    ) -> None:
        if memory.is_applied(resource.kind, digest, there):
            return
        if there is None:
            written = await self._first(resource, wanted, memory)
        else:
            written = await self._kube.apply(resource, wanted, manager=MANAGER)
        self._caches.adopt(resource, written)
        memory.applied(resource.kind, digest, written)

    async def _first(self, resource: Resource, wanted: Object, memory: Memory) -> Object:
        """Apply an object that no watch shows, which sees those with the pool's label only.

        Raises NameTaken if one of this name exists that is not the pool's: applying would take it
        over. One that somebody makes at this moment keeps at least the fields that it has.
        """
        if memory.has_applied(resource.kind):  # too new for the watch, or it lost its label
            return await self._kube.apply(resource, wanted, manager=MANAGER)
        try:
            await self._check_name(resource, wanted)
            return await self._kube.apply(resource, wanted, manager=MANAGER, force=False)
        except FieldConflict:
            raise _taken(resource, wanted, self._key) from None

    async def _check_name(self, resource: Resource, wanted: Object) -> None:
        key = key_of(wanted)
        there, _ = await self._kube.list(
            resource, key.namespace, fields=f"metadata.name={key.name}"
        )
        (owner,) = wanted["metadata"]["ownerReferences"]
        for item in there:
            owners = item["metadata"].get("ownerReferences") or ()
            is_ours = any(one["uid"] == owner["uid"] for one in owners)
            if not is_ours and POOL_LABEL not in (item["metadata"].get("labels") or {}):
                raise _taken(resource, wanted, self._key)


def _taken(resource: Resource, wanted: Object, pool: Key) -> NameTaken:
    what = f"a {resource.kind} {key_of(wanted)} without the label {POOL_LABEL}={pool.name}"
    return NameTaken(
        f"{what} exists and does not belong to this pool: delete or rename one of the two"
    )


def _digest(item: Object) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(item, sort_keys=True).encode())


def replicas_of(item: Object | None) -> int:
    """A Deployment's `spec.replicas`; 0 without a Deployment."""
    spec: dict[str, Any] = (item or {}).get("spec", {})
    return int(spec.get("replicas", 0))


def _has_scaler(item: Object) -> bool:
    """Whether the scaler owns `replicas`, so that an apply without that field keeps it."""
    return any(
        one.get("manager") == SCALER and one.get("operation") == "Apply"
        for one in item["metadata"].get("managedFields") or ()
    )
