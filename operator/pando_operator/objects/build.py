"""Builds a pool's Deployment, Service and PodDisruptionBudget for server-side apply.

The same pool and settings always give the same objects, so applying them again changes nothing and
starts no rollout.
"""

import json
from typing import Any

import xxhash

from pando_operator.objects.labels import HTTP_PORT, metadata, selector
from pando_operator.objects.pod import pod_template
from pando_operator.resource.policy import START_LIMIT_S
from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.spec import WorkerPoolSpec
from pando_operator.settings import OperatorSettings

SPEC = "pando.dev/spec"
"""Annotation of the Deployment: digest of the part of the pool's spec that its pods depend on."""


def deployment(pool: WorkerPool, settings: OperatorSettings) -> dict[str, Any]:
    """The pool's Deployment without `replicas`, which only the scaler writes."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(pool, pool.name) | {"annotations": {SPEC: _spec_digest(pool.spec)}},
        "spec": {
            "selector": {"matchLabels": selector(pool.name)},
            "paused": pool.spec.paused,  # set if false, too: `kubectl rollout pause` is undone
            # A new replica must serve before an old one leaves.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": START_LIMIT_S + 600,
            "template": pod_template(pool, settings),
        },
    }


def _spec_digest(spec: WorkerPoolSpec) -> str:
    """The digest of what users have set for the pods. Another version of the operator must give
    the same one, so defaults are left out."""
    scales = {"replicas", "paused", "max_unavailable", "adapters", "scaling", "gpu_type"}
    wanted = spec.model_dump(mode="json", exclude_defaults=True, exclude=scales)
    wanted["drain"] = spec.scaling.drain.model_dump(mode="json", exclude_defaults=True)
    return xxhash.xxh3_64_hexdigest(json.dumps(wanted, sort_keys=True).encode())


def disruption_budget(pool: WorkerPool, server_minor: int, *, moves: bool) -> dict[str, Any]:
    """The pool's PodDisruptionBudget: node drains evict a few replicas at a time.

    Args:
        server_minor: of the API server's version; 1.26 and older have no policy for unready pods.
        moves: whether the pool's only replica moves by itself (`lifecycle/moving.py`), so that
            nobody has to evict it.
    """
    spec: dict[str, Any] = {
        "maxUnavailable": 0 if moves else pool.spec.max_unavailable,
        "selector": {"matchLabels": selector(pool.name)},
    }
    if server_minor >= 27:
        spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow"  # a pool that never starts holds no node
    return {"metadata": metadata(pool, pool.name), "spec": spec}


def service(pool: WorkerPool) -> dict[str, Any]:
    """The pool's headless Service: DNS names for its pods, and an endpoint each for Prometheus."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(pool, pool.name),
        "spec": {
            "clusterIP": "None",
            "selector": selector(pool.name),
            "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }
