"""The objects that a pool owns, kept as they are to be: its Deployment and its Service."""

import json
from typing import Any, NamedTuple

import xxhash

from pando_operator.controller.acting.execute import MANAGER, SCALER, Executor
from pando_operator.controller.memory import Memory
from pando_operator.controller.observing.world import World
from pando_operator.kube.client import Kube
from pando_operator.kube.errors import Conflict, Forbidden, Invalid, KubeError
from pando_operator.kube.resources import (
    DEPLOYMENTS,
    SERVICES,
    WORKER_POOLS,
    Key,
    Object,
    Resource,
    key_of,
)
from pando_operator.objects.build import deployment, service
from pando_operator.objects.labels import POOL_LABEL
from pando_operator.resource.pool import WorkerPool
from pando_operator.settings import OperatorSettings


class NameTaken(KubeError):  # noqa: N818  (a state of the world, not a mistake)
    """An object of the name that the pool's needs is somebody else's."""


REFUSALS = (Forbidden, Invalid, NameTaken)
"""The API server's, and our own: they stay until a person does something."""


class _Built(NamedTuple):
    """A pool's objects, each with its digest."""

    version: tuple[str, int]  # uid and generation of the pool
    service: tuple[Object, str]
    deployment: tuple[Object, str]


class OwnedObjects:
    """Of one pool. They are applied where they differ from what was applied last, or where somebody
    has changed them since; after a start of the operator, once."""

    def __init__(
        self, kube: Kube, world: World, executor: Executor, settings: OperatorSettings, key: Key
    ) -> None:
        self._kube, self._world, self._executor = kube, world, executor
        self._settings, self._key = settings, key
        self._built: _Built | None = None

    async def apply(self, pool: WorkerPool, memory: Memory, size: int) -> int:
        """The Deployment's `replicas`, which are `size` where it was not there before. Raises
        KubeError: one of REFUSALS where nobody but a person can help."""
        built = self._build(pool)
        await self._apply(SERVICES, *built.service, self._world.service(self._key), memory)
        (wanted, digest), there = built.deployment, self._world.deployment(self._key)
        if there is None:
            # With its size, as it would have a pod else; the next lines make that the scaler's.
            wanted = wanted | {"spec": wanted["spec"] | {"replicas": size}}
            await self._check_name(DEPLOYMENTS, wanted, memory)
            created = await self._kube.apply(DEPLOYMENTS, wanted, manager=MANAGER)
            memory.applied(DEPLOYMENTS.kind, "", created)
            self._world.adopt(DEPLOYMENTS, created)
            await self._executor.scale(size)
            return size
        if not _has_scaler(there):
            await self._executor.scale(replicas_of(there))
        await self._apply(DEPLOYMENTS, wanted, digest, there, memory)
        return replicas_of(there)

    async def keep_size(self, pool: WorkerPool, memory: Memory, size: int) -> None:
        """`spec.replicas` is the size that was decided, as an autoscaler has it, so that the pool
        keeps that when its mode leaves Auto. Written before anything follows from the decision.
        Raises KubeError: Conflict where somebody has just changed the pool."""
        version = pool.metadata.resource_version
        if pool.spec.replicas == size or memory.size_kept == (version, size):
            return  # it is so, or was made so and is not yet seen
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": size}}
        await self._kube.patch(WORKER_POOLS, self._key, body, manager=MANAGER, subresource="scale")
        memory.size_kept = version, size

    def _build(self, pool: WorkerPool) -> "_Built":
        """Once for each version of its spec."""
        version = pool.metadata.uid, pool.metadata.generation
        if self._built is None or self._built.version != version:
            made = service(pool), deployment(pool, self._settings)
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
            await self._check_name(resource, wanted, memory)
        written = await self._kube.apply(resource, wanted, manager=MANAGER)
        self._world.adopt(resource, written)
        memory.applied(resource.kind, digest, written)

    async def _check_name(self, resource: Resource, wanted: Object, memory: Memory) -> None:
        """Raises NameTaken where somebody else has made such an object, which an apply would make
        the pool's. Only those with the pool's label are watched, so the API server is asked."""
        if memory.has_applied(resource.kind):
            return  # it was made just now, or its label is gone
        try:
            await self._kube.create(resource, wanted, dry_run=True)
        except (Forbidden, Invalid):
            return  # some webhooks refuse what is dry; what counts is said to the apply
        except Conflict:
            what = f"{resource.kind} {key_of(wanted)}"
            message = f"there is a {what} without the label {POOL_LABEL}={self._key.name}"
            raise NameTaken(f"{message}: it is not this pool's, so delete or rename one") from None


def _digest(item: Object) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(item, sort_keys=True).encode())


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
