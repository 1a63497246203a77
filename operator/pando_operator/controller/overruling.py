"""What somebody else wrote to a size that the operator decides, in words.

An HorizontalPodAutoscaler on the Deployment, or a person with `kubectl scale`, is overruled at the
next reconcile. Without a word they would see their number vanish.
"""

from pando_operator.controller.acting.owned_objects import replicas_of
from pando_operator.controller.memory import Memory
from pando_operator.kube.resources import MANAGER, SCALER, Object
from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.scaling import Mode


def new_overruled(memory: Memory, pool: WorkerPool, deployment: Object | None, desired: int) -> str:
    """What is overruled now and was not at the last call, or ""."""
    found = _on_deployment(deployment, pool) or _on_pool(memory, pool, desired)
    is_new = found != memory.overruled
    memory.overruled = found
    return found if is_new else ""


def _on_deployment(deployment: Object | None, pool: WorkerPool) -> str:
    """Kubernetes notes for each field which managers last wrote its value."""
    for one in (deployment or {}).get("metadata", {}).get("managedFields") or ():
        manager = str(one.get("manager", ""))
        wrote = "f:replicas" in one.get("fieldsV1", {}).get("f:spec", {})
        if wrote and manager not in (SCALER, MANAGER):
            return (
                f"{manager} set the Deployment's replicas to {replicas_of(deployment)}; the size is"
                f" that of the WorkerPool: scale workerpool/{pool.name}"
            )
    return ""


def _on_pool(memory: Memory, pool: WorkerPool, desired: int) -> str:
    """Somebody changed `spec.replicas` in mode Auto, after the operator had written it."""
    kept = memory.size_kept
    is_auto = pool.spec.scaling.mode is Mode.AUTO
    if not is_auto or kept is None or kept[1] != desired or pool.spec.replicas == desired:
        return ""
    if kept[0] == pool.metadata.resource_version:
        return ""  # the watch has not shown the operator's own write yet
    return (
        f"spec.replicas was set to {pool.spec.replicas}; in mode Auto the load decides, which wants"
        f" {desired}: set scaling.minReplicas, or scaling.mode to Manual"
    )
