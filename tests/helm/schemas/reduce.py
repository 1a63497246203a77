"""Extracts the schemas of the chart's kinds from all schemas of a Kubernetes version.

`python tests/helm/schemas/reduce.py FOLDER` writes kubernetes-1.20.json; FOLDER is
`v1.20.0-local-strict` from the source of kubernetes-validate 1.20.0 (PyPI), as the installed
version starts at 1.25.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

KINDS = {
    "autoscaling/v2/HorizontalPodAutoscaler": "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    "policy/v1/PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
    "v1/ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "v1/PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "v1/Pod": "io.k8s.api.core.v1.Pod",
    "v1/Secret": "io.k8s.api.core.v1.Secret",
    "v1/Service": "io.k8s.api.core.v1.Service",
    "v1/ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
    "apps/v1/Deployment": "io.k8s.api.apps.v1.Deployment",
    "autoscaling/v2beta2/HorizontalPodAutoscaler": (
        "io.k8s.api.autoscaling.v2beta2.HorizontalPodAutoscaler"
    ),
    "batch/v1/Job": "io.k8s.api.batch.v1.Job",
    "coordination.k8s.io/v1/Lease": "io.k8s.api.coordination.v1.Lease",
    "networking.k8s.io/v1/Ingress": "io.k8s.api.networking.v1.Ingress",
    "networking.k8s.io/v1/NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
    "policy/v1beta1/PodDisruptionBudget": "io.k8s.api.policy.v1beta1.PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1/ClusterRole": "io.k8s.api.rbac.v1.ClusterRole",
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": "io.k8s.api.rbac.v1.ClusterRoleBinding",
    "rbac.authorization.k8s.io/v1/Role": "io.k8s.api.rbac.v1.Role",
    "rbac.authorization.k8s.io/v1/RoleBinding": "io.k8s.api.rbac.v1.RoleBinding",
    "apiextensions.k8s.io/v1/CustomResourceDefinition": (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
    ),
}


def reduced(everything: dict[str, Any]) -> dict[str, Any]:
    """`kinds`, by API and name, and the `definitions` that they refer to, without descriptions."""
    definitions = everything.get("$defs") or everything["definitions"]
    kinds = {kind: name for kind, name in KINDS.items() if name in definitions}
    kept: dict[str, Any] = {}
    waiting = list(kinds.values())
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = _plain(definitions[name])
            waiting += _references(kept[name])
    return {"kinds": kinds, "definitions": dict(sorted(kept.items()))}


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: (
            {name: _plain(one) for name, one in value.items()}
            if key == "properties"
            else "#/definitions/" + value.rsplit("/", 1)[-1]
            if key == "$ref"
            else _plain(value)
        )
        for key, value in schema.items()
        if key != "description" and not key.startswith("x-kubernetes-")
    }


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for one in schema for name in _references(one)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].rsplit("/", 1)[-1]] if isinstance(schema.get("$ref"), str) else []
    return own + [name for one in schema.values() for name in _references(one)]


if __name__ == "__main__":
    source = json.loads((Path(sys.argv[1]) / "_definitions.json").read_text(encoding="utf-8"))
    text = json.dumps(reduced(source), separators=(",", ":"))
    (HERE / "kubernetes-1.20.json").write_text(text + "\n", encoding="utf-8")
