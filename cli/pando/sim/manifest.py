"""Reads a WorkerPool manifest, and what a simulation uses of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic.alias_generators import to_snake

from pando_fleet import strict_yaml
from pando_operator.resource.base import GROUP, KIND, VERSION

if TYPE_CHECKING:
    from pando_operator.resource.pool import WorkerPool

NONE: dict[str, Any] = {
    "apiVersion": f"{GROUP}/{VERSION}",
    "kind": KIND,
    "metadata": {"name": "pool"},
    "spec": {"model": "simulated", "replicas": 4},
}
"""The pool that is simulated without a manifest."""

SCHEDULING = frozenset(
    {
        "batching",
        "eviction_policy",
        "host_write",
        "max_passed_over",
        "max_queued_requests",
        "new_token_ratio",
        "radix_cache",
        "schedule_policy",
        "watermark",
    }
)
"""The worker's settings that its scheduler uses, so they also apply in a simulation. Memory and
batch sizes are fields of `WorkerSpec`. All others concern how the model is computed, which the cost
model replaces, or the HTTP server, which is not simulated."""


class ManifestError(Exception):
    """A manifest cannot be read or is invalid; the message is one line."""


def read(path: Path | None) -> "WorkerPool":
    """The only WorkerPool in the file, checked as by the operator. Raises ManifestError."""
    document = NONE if path is None else read_document(path)
    # Imported here: the schema and its rules take long to load, and a missing file needs neither.
    from pando_operator.resource.parse import InvalidPool, parse

    try:
        return parse(document)
    except InvalidPool as error:
        raise ManifestError(f"--pool {path}: {' '.join(str(error).split())}") from None


def read_document(path: Path) -> dict[str, Any]:
    """The only WorkerPool in the file, as it is written. Raises ManifestError."""
    try:
        documents = strict_yaml.load_all(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ManifestError(f"--pool {path}: cannot be read: {why}") from None
    except yaml.YAMLError as error:
        raise ManifestError(f"--pool {path}: not YAML: {strict_yaml.problem_of(error)}") from None
    pools = [one for one in documents if isinstance(one, dict) and one.get("kind") == KIND]
    if len(pools) != 1:
        raise ManifestError(f"--pool {path}: must have one object of kind {KIND}, not {len(pools)}")
    if pools[0].get("apiVersion") != NONE["apiVersion"]:
        raise ManifestError(
            f"--pool {path}: apiVersion must be {NONE['apiVersion']!r}, not"
            f" {pools[0].get('apiVersion')!r}"
        )
    return pools[0]


def engine(pool: "WorkerPool") -> dict[str, Any]:
    """`spec.engine` under the names of the worker's settings."""
    return {to_snake(name): value for name, value in pool.spec.engine.items()}
