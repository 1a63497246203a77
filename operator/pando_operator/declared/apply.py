"""Applies the WorkerPools that a ConfigMap declares, and deletes those that it no longer declares.

The ConfigMap owns its pools, so Kubernetes deletes them with it. A pool of the same name that
somebody else created stays untouched; `apply_declared` raises an error for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from pando_operator.kube.client import Kube
from pando_operator.kube.errors import NotFound, Unavailable
from pando_operator.kube.resources import WORKER_POOLS, Key, Object, Resource, key_of

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
MANAGER = "pando-declared"
RETRY_S = 1.0


class DeclaredError(Exception):
    """A declared pool cannot be applied; the message names it and the reason."""


async def apply_declared(
    kube: Kube, config_map: Key, say: Callable[[str], None], *, retry_s: float = RETRY_S
) -> None:
    """Apply and delete; `say` gets one line for each pool.

    Retries while the API server is unreachable, does not serve the kind yet, or still deletes a
    pool of an earlier ConfigMap of that name. Raises DeclaredError, and KubeError if the API server
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


class _StillThereError(Exception):
    """Kubernetes has yet to delete a pool together with its former owner."""


async def _once(kube: Kube, config_map: Key, say: Callable[[str], None]) -> None:
    owner = await kube.get(CONFIG_MAPS, config_map)
    wanted = [_owned(pool, owner) for pool in parse(owner.get("data") or {}, config_map.namespace)]
    found, _ = await kube.list(WORKER_POOLS, config_map.namespace)
    there = {key_of(pool).name: pool for pool in found}
    for pool in wanted:
        _check_is_ours(there.get(key_of(pool).name), owner)
    for pool in wanted:
        _keep_replicas(pool, there.get(key_of(pool).name))
        before = there.get(key_of(pool).name, {}).get("metadata", {}).get("generation", 0)
        after = (await kube.apply(WORKER_POOLS, pool, manager=MANAGER))["metadata"]["generation"]
        did = "unchanged" if after == before else "changed" if before else "created"
        say(f"{key_of(pool).name}: {did}")
    names = {key_of(pool).name for pool in wanted}
    for name in sorted(name for name, pool in there.items() if _uid_of_owner(pool, owner)):
        if name not in names:
            await kube.delete(WORKER_POOLS, Key(config_map.namespace, name))
            say(f"{name}: deleted")


def parse(data: Mapping[str, str], namespace: str) -> list[Object]:
    """The pools in a ConfigMap's data, one for each key. Raises DeclaredError."""
    pools: list[Object] = []
    for file, text in sorted(data.items()):
        try:
            pool: Any = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise DeclaredError(f"{file} is not YAML: {error}") from error
        if not isinstance(pool, dict) or pool.get("kind") != WORKER_POOLS.kind:
            raise DeclaredError(f"{file} is not a {WORKER_POOLS.kind}")
        if pool.get("metadata", {}).get("namespace") != namespace:
            raise DeclaredError(f"{file} is not for the namespace {namespace}")
        pools.append(pool)
    return pools


def _owned(pool: Object, owner: Object) -> Object:
    metadata = owner["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return pool | {"metadata": pool["metadata"] | {"ownerReferences": [reference]}}


def _keep_replicas(pool: Object, there: Object | None) -> None:
    """Keep a `replicas` that is no longer declared; the API server would set its default, 1."""
    if there and "replicas" in there["spec"]:
        pool["spec"].setdefault("replicas", there["spec"]["replicas"])


def _check_is_ours(pool: Object | None, owner: Object) -> None:
    """Raise unless the existing pool, if there is one, belongs to this ConfigMap."""
    if pool is None or _uid_of_owner(pool, owner) == owner["metadata"]["uid"]:
        return
    name, owners_name = pool["metadata"]["name"], owner["metadata"]["name"]
    if _uid_of_owner(pool, owner):
        raise _StillThereError(f"{name} still belongs to an earlier ConfigMap {owners_name}")
    raise DeclaredError(
        f"a WorkerPool {name} exists that does not belong to the ConfigMap {owners_name}:"
        " delete it, or choose another name"
    )


def _uid_of_owner(pool: Object, owner: Object) -> str:
    """The uid of the ConfigMap with the owner's name that owns the pool; "" if none does."""
    for reference in pool["metadata"].get("ownerReferences") or ():
        if (reference["kind"], reference["name"]) == ("ConfigMap", owner["metadata"]["name"]):
            return str(reference["uid"])
    return ""
