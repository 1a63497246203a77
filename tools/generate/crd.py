"""Writes the WorkerPool's CRD and the schemas that it consists of.

`spec.engine` comes from the worker's settings and parts of `spec.template` from the models of the
Kubernetes client; the operator reads both from package data, so it needs neither.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from pando_operator.resource.base import Schema
from pando_operator.resource.crd import crd
from pando_operator.resource.structural import convert
from pando_worker.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
RESOURCE = ROOT / "operator/pando_operator/resource"
CRD = ROOT / "helm/pando/files/workerpool-crd.yaml"

OPERATORS_OWN = frozenset(
    {
        "model",
        "served_model_name",
        "host",
        "port",
        "admin_token",
        "redis",
        "pool",
        "replica",
        "url",
        "tensor_parallel_size",
        "drain_seconds",
        "hand_off_seconds",
        "lora_modules",
        "pinned_loras",
    }
)
"""Worker settings that the operator sets from other parts of the spec, or that are secret."""

TYPES: dict[str, type[BaseModel]] = {
    "Affinity": client.V1Affinity,
    "EnvFromSource": client.V1EnvFromSource,
    "EnvVar": client.V1EnvVar,
    "LocalObjectReference": client.V1LocalObjectReference,
    "PodSecurityContext": client.V1PodSecurityContext,
    "ResourceRequirements": client.V1ResourceRequirements,
    "SecurityContext": client.V1SecurityContext,
    "Toleration": client.V1Toleration,
    "TopologySpreadConstraint": client.V1TopologySpreadConstraint,
    "Volume": client.V1Volume,
    "VolumeMount": client.V1VolumeMount,
}

VOLUME_SOURCES = frozenset(
    {
        "name",
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "hostPath",
        "image",
        "nfs",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
"""Volume types that Kubernetes has not replaced by CSI."""

QUANTITY: Schema = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
}
OBJECT_META: Schema = {
    "type": "object",
    "properties": {
        name: {"type": "object", "additionalProperties": {"type": "string"}}
        for name in ("annotations", "labels")
    },
}


def engine_schema() -> Schema:
    """The worker's settings in camelCase, without defaults: the CRD would store a default in each
    pool, where it would outlive an update."""
    schema = WorkerSettings.model_json_schema()
    defs = schema.get("$defs", {})
    found = {}
    for name, node in schema["properties"].items():
        if name not in OPERATORS_OWN:
            setting = convert(node, defs, {})
            default = setting.pop("default", None)
            if default is not None:
                setting["description"] += f" (default {json.dumps(default)})"
            found[to_camel(name)] = setting
    return {"type": "object", "properties": found}


def pod_schema() -> dict[str, Schema]:
    """Kubernetes' own types, without descriptions: `kubectl explain pod.spec` has those."""
    return {name: _kubernetes(model) for name, model in TYPES.items()}


def _kubernetes(model: type[BaseModel]) -> Schema:
    schema = model.model_json_schema(by_alias=True)
    defs = schema.get("$defs", {})
    if "V1ObjectMeta" in defs:
        defs["V1ObjectMeta"] = OBJECT_META
    if model is client.V1Volume:
        schema["properties"] = {
            name: node for name, node in schema["properties"].items() if name in VOLUME_SOURCES
        }
    plain = _plain(convert(schema, defs, {}))
    if model in (client.V1PodSecurityContext, client.V1SecurityContext):
        for node in plain["properties"].values():
            node["nullable"] = True  # null takes the operator's own value away
    for name in ("name", "mountPath"):  # bounded, which bounds the cost of rules
        if name in plain["properties"]:
            plain["properties"][name]["maxLength"] = 253
    return plain


def _plain(schema: Schema, name: str = "") -> Schema:
    """Removes descriptions, and describes quantities as Kubernetes parses them."""
    if name in ("sizeLimit", "divisor"):
        return QUANTITY
    found = {key: value for key, value in schema.items() if key not in ("description", "default")}
    if "properties" in found:
        found["properties"] = {
            key: _plain(value, key) for key, value in found["properties"].items()
        }
    if "items" in found:
        found["items"] = _plain(found["items"])
    if "additionalProperties" in found and name in ("limits", "requests"):
        found["additionalProperties"] = QUANTITY
    return found


def files() -> Iterator[tuple[Path, str]]:
    yield RESOURCE / "engine_schema.json", _json(engine_schema())
    yield RESOURCE / "pod_schema.json", _json(pod_schema())
    # Consists of the two above, which have been written by now.
    text = yaml.dump(crd(), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    yield CRD, f"# Written by `make generate`; do not edit by hand.\n{text}"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1) + "\n"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
