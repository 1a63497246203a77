"""The objects that a pool owns, kept as they are to be: its Deployment and its Service."""

import json
from typing import Any

import xxhash

from pando_operator.controller.execute import MANAGER, SCALER, Executor
from pando_operator.controller.memory import Memory
from pando_operator.controller.world import World
from pando_operator.kube.client import Kube
from pando_operator.kube.resources import DEPLOYMENTS, SERVICES, Key, Object, Resource
from pando_operator.objects.build import deployment, service
from pando_operator.objects.defaults import WorkerDefaults
from pando_operator.resource.pool import WorkerPool


class Parts:
    """Of one pool. They are applied where they differ from what was applied last, or where somebody
    has changed them since; after a start of the operator, once."""

    def __init__(
        self, kube: Kube, world: World, executor: Executor, defaults: WorkerDefaults, key: Key
    ) -> None:
        self._kube, self._world, self._executor = kube, world, executor
        self._defaults, self._key = defaults, key

    async def apply(self, pool: WorkerPool, memory: Memory, size: int) -> int:
        """The Deployment's `replicas`, which are `size` where it was not there before. Raises
        KubeError."""
        await self._apply(SERVICES, service(pool), self._world.service(self._key), memory)
        wanted, there = deployment(pool, self._defaults), self._world.deployment(self._key)
        if there is None:
            # With its size, as it would have a pod else; the next lines make that the scaler's.
            wanted["spec"]["replicas"] = size
            created = await self._kube.apply(DEPLOYMENTS, wanted, manager=MANAGER)
            self._world.adopt(DEPLOYMENTS, created)
            await self._executor.scale(size)
            return size
        if not _has_scaler(there):
            await self._executor.scale(replicas_of(there))
        await self._apply(DEPLOYMENTS, wanted, there, memory)
        return replicas_of(there)

    async def _apply(
        self, resource: Resource, wanted: Object, there: Object | None, memory: Memory
    ) -> None:
        digest = xxhash.xxh3_64_hexdigest(json.dumps(wanted, sort_keys=True).encode())
        if memory.is_applied(resource.kind, digest, there):
            return
        written = await self._kube.apply(resource, wanted, manager=MANAGER)
        self._world.adopt(resource, written)
        memory.applied(resource.kind, digest, written)


def replicas_of(item: Object | None) -> int:
    """That a Deployment asks for; 0 for none."""
    spec: dict[str, Any] = (item or {}).get("spec", {})
    return int(spec.get("replicas", 0))


def _has_scaler(item: Object) -> bool:
    """Whether `replicas` would stay when the operator's other fields are applied without it."""
    return any(
        one.get("manager") == SCALER and one.get("operation") == "Apply"
        for one in item["metadata"].get("managedFields") or ()
    )
