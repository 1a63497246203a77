"""The pod of a worker: restricted, with a read-only root, and not ready until its gate opens."""

import json
from typing import Any

import xxhash

from pando_operator.lifecycle.pods import GATE, TEMPLATE
from pando_operator.objects.environment import environment
from pando_operator.objects.labels import HTTP_PORT, labels
from pando_operator.objects.quantities import as_text
from pando_operator.resource.policy import START_LIMIT_S
from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.spec import GRACE_MARGIN_S, Template, WorkerPoolSpec
from pando_operator.settings import OperatorSettings

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""The cluster autoscaler removes no node with a pod that has an emptyDir, except those named here;
the worker's own hold nothing that outlives a process."""

_POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 65_532,  # the image's own; repeated so that volumes can belong to its group
    "runAsGroup": 65_532,
    "fsGroup": 65_532,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def pod_template(pool: WorkerPool, settings: OperatorSettings) -> dict[str, Any]:
    """`spec.template` of the pool's Deployment, with its own digest as an annotation."""
    built = _template(pool, settings)
    text = json.dumps(built, sort_keys=True)
    built["metadata"]["annotations"][TEMPLATE] = xxhash.xxh3_64_hexdigest(text.encode())
    return built


def _template(pool: WorkerPool, settings: OperatorSettings) -> dict[str, Any]:
    template = pool.spec.template
    return {
        "metadata": {
            "labels": {**template.labels, **labels(pool.name)},
            "annotations": {
                SAFE_TO_EVICT: ",".join(_own_paths(pool.spec)),
                **template.annotations,
            },
        },
        "spec": _filled(
            {
                "readinessGates": [{"conditionType": GATE}],
                "automountServiceAccountToken": False,
                # The worker would read the variables of a Service named pando-worker as settings.
                "enableServiceLinks": False,
                "serviceAccountName": template.service_account_name,
                "imagePullSecrets": list(template.image_pull_secrets)
                or [{"name": name} for name in settings.worker_image_pull_secrets],
                "securityContext": _replaced(_POD_SECURITY, template.pod_security_context),
                "terminationGracePeriodSeconds": grace_s(pool.spec),
                "nodeSelector": dict(template.node_selector),
                "tolerations": list(template.tolerations),
                "affinity": template.affinity,
                "topologySpreadConstraints": list(template.topology_spread_constraints),
                "runtimeClassName": template.runtime_class_name,
                "priorityClassName": template.priority_class_name,
                "containers": [_container(pool, settings)],
                "volumes": [*_own_volumes(pool.spec), *as_text(list(template.volumes))],
            }
        ),
    }


def grace_s(spec: WorkerPoolSpec) -> int:
    """Seconds from SIGTERM to SIGKILL; the worker's own drain ends earlier."""
    least = spec.scaling.drain.timeout_seconds + GRACE_MARGIN_S
    return spec.template.termination_grace_period_seconds or least


def _container(pool: WorkerPool, settings: OperatorSettings) -> dict[str, Any]:
    template = pool.spec.template
    return _filled(
        {
            "name": "worker",
            "image": template.image or settings.worker_image,
            "imagePullPolicy": template.image_pull_policy or settings.worker_image_pull_policy,
            "args": ["worker"],
            "env": environment(pool, settings),
            "envFrom": list(template.env_from),
            "ports": [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}],
            # It answers as soon as the model is on disk, while it still loads.
            "startupProbe": _probe("/healthz", period=2, failures=START_LIMIT_S // 2),
            # The worker's own watchdog handles a scheduler that hangs.
            "livenessProbe": _probe("/healthz", period=10, failures=6),
            "readinessProbe": _probe("/readyz", period=2, failures=3),
            "resources": as_text(template.resources),
            "securityContext": _replaced(_CONTAINER_SECURITY, template.security_context),
            "volumeMounts": [*_own_mounts(pool.spec), *template.volume_mounts],
        }
    )


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
        "successThreshold": 1,
    }


def _own_paths(spec: WorkerPoolSpec) -> dict[str, tuple[str, dict[str, Any]]]:
    """The mount path and the kind of each own volume, without paths that the template mounts."""
    paths: dict[str, tuple[str, dict[str, Any]]] = {
        "pando-tmp": ("/tmp", {}),
        "pando-cache": ("/cache", {}),
    }
    if spec.tensor_parallel_size > 1 or spec.engine.get("device") == "cuda":
        # Ranks exchange data in shared memory; a container has only 64 MiB of it by default.
        paths["pando-shm"] = ("/dev/shm", {"medium": "Memory"})
    taken = _mounted(spec.template)
    return {name: own for name, own in paths.items() if own[0] not in taken}


def _mounted(template: Template) -> set[str]:
    return {mount["mountPath"].rstrip("/") for mount in template.volume_mounts}


def _own_volumes(spec: WorkerPoolSpec) -> list[dict[str, Any]]:
    return [{"name": name, "emptyDir": kind} for name, (_, kind) in _own_paths(spec).items()]


def _own_mounts(spec: WorkerPoolSpec) -> list[dict[str, Any]]:
    return [{"name": name, "mountPath": path} for name, (path, _) in _own_paths(spec).items()]


def _replaced(own: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The operator's fields under those of the template, of which a null takes one away: OpenShift
    chooses a uid for each namespace and allows no other."""
    return {name: value for name, value in (own | theirs).items() if value is not None}


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that are set: server-side apply would own even an empty one."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}
