"""Applies the WorkerPools that a ConfigMap declares, and deletes those that it no longer declares.

A label names the ConfigMap that declares a pool. It is no owner: Kubernetes would delete all pools,
with their streams, when somebody deletes or recreates the ConfigMap. They go when the ConfigMap no
longer declares them, or with the release (`delete_declared`). A pool of the same name that somebody
else created stays untouched; `apply_declared` raises an error for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import yaml

from pando_fleet import strict_yaml
from pando_operator.kube.client import Kube
from pando_operator.kube.errors import NotFound, Unavailable
from pando_operator.kube.resources import WORKER_POOLS, Key, Object, Resource, key_of

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
MANAGER = "pando-declared"
DECLARED_BY = "pando.dev/declared-by"
"""Label of a pool: the name of the ConfigMap that declares it."""

RETRY_S = 1.0


class DeclaredError(Exception):
    """A declared pool cannot be applied; the message names it and the reason."""


async def apply_declared(
    kube: Kube, config_map: Key, say: Callable[[str], None], *, retry_s: float = RETRY_S
) -> None:
    """Apply and delete; `say` gets one line for each pool.

    Retries while the API server is unreachable, does not serve the kind yet, or still deletes a
    pool of that name. Raises DeclaredError, and KubeError if the API server
    refuses a pool: Invalid names the field.
    """
    waits_for = ""
    while True:
        try:
            await _once(kube, config_map, say)
            return
        except (NotFound, Unavailable, _StillThereError) as error:
            if str(error) != waits_for:
                say(f"waiting: {error}")
            waits_for = str(error)
            await asyncio.sleep(retry_s)


async def delete_declared(kube: Kube, config_map: Key, say: Callable[[str], None]) -> None:
    """Delete all pools that the ConfigMap has declared, whether or not it still exists. Raises
    KubeError."""
    with suppress(NotFound):  # the kind is gone, and every pool with it
        for pool in await _theirs(kube, config_map):
            with suppress(NotFound):
                await kube.delete(WORKER_POOLS, key_of(pool))
            say(f"{key_of(pool).name}: deleted")


class _StillThereError(Exception):
    """Kubernetes has yet to delete a pool."""


async def _once(kube: Kube, config_map: Key, say: Callable[[str], None]) -> None:
    data = (await kube.get(CONFIG_MAPS, config_map)).get("data") or {}
    wanted = [_labelled(pool, config_map) for pool in parse(data, config_map.namespace)]
    found, _ = await kube.list(WORKER_POOLS, config_map.namespace)
    there = {key_of(pool).name: pool for pool in found}
    for pool in wanted:
        _check_is_ours(there.get(key_of(pool).name), config_map)
    for pool in wanted:
        _keep_replicas(pool, there.get(key_of(pool).name))
        before = there.get(key_of(pool).name, {}).get("metadata", {}).get("generation", 0)
        after = (await kube.apply(WORKER_POOLS, pool, manager=MANAGER))["metadata"]["generation"]
        did = "unchanged" if after == before else "changed" if before else "created"
        say(f"{key_of(pool).name}: {did}")
    names = {key_of(pool).name for pool in wanted}
    for name in sorted(name for name, pool in there.items() if _is_ours(pool, config_map)):
        if name not in names:
            await kube.delete(WORKER_POOLS, Key(config_map.namespace, name))
            say(f"{name}: deleted")


async def _theirs(kube: Kube, config_map: Key) -> list[Object]:
    found, _ = await kube.list(WORKER_POOLS, config_map.namespace)
    return [pool for pool in found if _is_ours(pool, config_map)]


def parse(data: Mapping[str, str], namespace: str) -> list[Object]:
    """The pools in a ConfigMap's data, one for each key. Raises DeclaredError."""
    pools: list[Object] = []
    for file, text in sorted(data.items()):
        try:
            pool: Any = strict_yaml.load(text)
        except yaml.YAMLError as error:
            raise DeclaredError(f"{file} is not YAML: {error}") from error
        if not isinstance(pool, dict) or pool.get("kind") != WORKER_POOLS.kind:
            raise DeclaredError(f"{file} is not a {WORKER_POOLS.kind}")
        if pool.get("metadata", {}).get("namespace") != namespace:
            raise DeclaredError(f"{file} is not for the namespace {namespace}")
        pools.append(pool)
    return pools


def _labelled(pool: Object, config_map: Key) -> Object:
    labels = (pool["metadata"].get("labels") or {}) | {DECLARED_BY: config_map.name}
    return pool | {"metadata": pool["metadata"] | {"labels": labels}}


def _keep_replicas(pool: Object, there: Object | None) -> None:
    """Keep a `replicas` that is no longer declared; the API server would set its default, 1."""
    if there and "replicas" in there["spec"]:
        pool["spec"].setdefault("replicas", there["spec"]["replicas"])


def _check_is_ours(pool: Object | None, config_map: Key) -> None:
    """Raise unless the existing pool, if there is one, is declared by this ConfigMap."""
    if pool is None:
        return
    name = pool["metadata"]["name"]
    if pool["metadata"].get("deletionTimestamp"):
        raise _StillThereError(f"{name} is being deleted")
    if not _is_ours(pool, config_map):
        raise DeclaredError(
            f"a WorkerPool {name} exists that does not belong to the ConfigMap {config_map.name}:"
            " delete it, or choose another name"
        )


def _is_ours(pool: Object, config_map: Key) -> bool:
    return (pool["metadata"].get("labels") or {}).get(DECLARED_BY) == config_map.name
