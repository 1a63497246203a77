"""Names and labels of a pool's objects."""

from typing import Any

from pando_operator.resource.base import GROUP, KIND, VERSION
from pando_operator.resource.pool import WorkerPool

POOL_LABEL = "pando.dev/pool"
HTTP_PORT = 30_000
"""Port of each worker's HTTP server, named `http` in its pod."""


def selector(pool: str) -> dict[str, str]:
    """The labels that select the pool's pods; immutable once a Deployment has them."""
    return {"app.kubernetes.io/name": "pando-worker", POOL_LABEL: pool}


def selector_text(pool: str) -> str:
    """The selector as text, for `status.selector` and list calls."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector(pool).items()))


def any_selector_text() -> str:
    """A selector for the pods of all pools."""
    return f"app.kubernetes.io/name=pando-worker,{POOL_LABEL}"


def labels(pool: str) -> dict[str, str]:
    """The labels of all objects that belong to the pool."""
    return {
        **selector(pool),
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/instance": pool,
        "app.kubernetes.io/managed-by": "pando-operator",
        "app.kubernetes.io/part-of": "pando",
    }


def metadata(pool: WorkerPool, name: str) -> dict[str, Any]:
    """Metadata of an object that the pool owns, so Kubernetes deletes it with the pool."""
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
