"""The kinds of objects that the operator uses, and helpers to read them as plain dicts."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""An object as parsed JSON."""

MANAGER, SCALER = "pando-operator", "pando-scaler"
"""Field managers. A Deployment's `replicas` has its own, so applying the rest never changes it."""


@dataclass(frozen=True, slots=True)
class Resource:
    group: str  # "" is the core group
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of one object, of all in a namespace, or of all in the cluster."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = f"/namespaces/{namespace}" if namespace else ""
        rest = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{where}/{self.plural}{rest}"


WORKER_POOLS = Resource("pando.dev", "v1alpha1", "workerpools", "WorkerPool")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SERVICES = Resource("", "v1", "services", "Service")
PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")


def disruption_budgets(server_minor: int) -> Resource:
    """PodDisruptionBudgets by the newest API that a server of version 1.`server_minor` has."""
    version = "v1" if server_minor >= 21 else "v1beta1"
    return Resource("policy", version, "poddisruptionbudgets", "PodDisruptionBudget")


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Identifies an object of a kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def key_of(item: Object) -> Key:
    metadata = item["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def version_of(item: Object) -> int:
    """Its resourceVersion, 0 if it has none. A higher number means a newer state of the object."""
    text = str(item.get("metadata", {}).get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0
