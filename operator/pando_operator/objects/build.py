"""Builds a pool's Deployment and Service for server-side apply.

The same pool and settings always give the same objects, so applying them again changes nothing and
starts no rollout.
"""

from typing import Any

from pando_operator.objects.labels import HTTP_PORT, metadata, selector
from pando_operator.objects.pod import pod_template
from pando_operator.resource.policy import START_LIMIT_S
from pando_operator.resource.pool import WorkerPool
from pando_operator.settings import OperatorSettings


def deployment(pool: WorkerPool, settings: OperatorSettings) -> dict[str, Any]:
    """The pool's Deployment without `replicas`, which only the scaler writes."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(pool, pool.name),
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
