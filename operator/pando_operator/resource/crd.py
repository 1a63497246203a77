"""Builds the CustomResourceDefinition of WorkerPool from its types."""

from typing import Any

from pando_operator.resource.base import GROUP, KIND, PLURAL, VERSION, Schema
from pando_operator.resource.parse import spec_schema
from pando_operator.resource.pool import NAME
from pando_operator.resource.status import WorkerPoolStatus
from pando_operator.resource.structural import definitions, structural

_COLUMNS = (
    ("Model", "string", ".spec.model", 0),
    ("Ready", "integer", ".status.readyReplicas", 0),
    ("Replicas", "integer", ".status.replicas", 0),
    ("Desired", "integer", ".status.desired", 0),
    ("Pressure", "number", ".status.pressure", 0),
    ("Mode", "string", ".spec.scaling.mode", 0),
    ("Adapters", "string", ".status.adaptersReady", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Draining", "integer", ".status.drainingReplicas", 1),
    ("Reason", "string", ".status.reason", 1),
)
"""Name, type, JSON path, and 1 for columns that only `-o wide` shows."""


def crd() -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["wp"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "priority": priority}
                        for name, kind, path, priority in _COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": _schema()},
                }
            ],
        },
    }


def _schema() -> Schema:
    return {
        "description": "A pool of workers that serve one model, and how it scales.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": NAME}},
            "spec": spec_schema(),
            "status": structural(WorkerPoolStatus, definitions()),
        },
    }
