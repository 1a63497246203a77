"""Names and labels of a pool's objects."""

from typing import Any

from pando_operator.resource.base import GROUP, KIND, VERSION
from pando_operator.resource.pool import WorkerPool

POOL_LABEL = "pando.dev/pool"
HTTP_PORT = 30_000
"""Of each worker's HTTP server; its port is named `http`."""


def selector(pool: str) -> dict[str, str]:
    """Of the pool's pods; it cannot be changed once a Deployment has it."""
    return {"app.kubernetes.io/name": "pando-worker", POOL_LABEL: pool}


def selector_text(pool: str) -> str:
    """As `status.selector` and list requests have it."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector(pool).items()))


def any_selector_text() -> str:
    """Of the pods of all pools."""
    return f"app.kubernetes.io/name=pando-worker,{POOL_LABEL}"


def labels(pool: str) -> dict[str, str]:
    """Of everything that belongs to the pool."""
    return {
        **selector(pool),
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/instance": pool,
        "app.kubernetes.io/managed-by": "pando-operator",
        "app.kubernetes.io/part-of": "pando",
    }


def metadata(pool: WorkerPool, name: str) -> dict[str, Any]:
    """Of an object that goes when the pool goes."""
    return {
        "name": name,
        "namespace": pool.metadata.namespace,
        "labels": labels(pool.name),
        "ownerReferences": [
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": KIND,
                "name": pool.name,
                "uid": pool.metadata.uid,
                "controller": True,
            }
        ],
    }
