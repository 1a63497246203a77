"""Validates objects against the schemas of a Kubernetes version; unknown fields are errors."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

from tests.helm.chart import CURRENT, OLDEST, Manifest
from tests.helm.schemas.reduce import reduced

FILE_OF_OLDEST = Path(__file__).with_name("schemas") / "kubernetes-1.20.json"

FOREIGN = {"ServiceMonitor", "PodMonitor", "HTTPRoute"}
"""Kinds of other projects, which have no schema here."""


@cache
def _schemas(kube: str) -> dict[str, Any]:
    schemas: dict[str, Any]
    if kube == OLDEST:
        schemas = json.loads(FILE_OF_OLDEST.read_text(encoding="utf-8"))
        return schemas
    folder = files("kubernetes_validate") / f"kubernetes-json-schema/{kube}-local-strict"
    everything = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))
    schemas = reduced(everything)
    return schemas


@cache
def _validator(kube: str, kind: str) -> jsonschema.Draft7Validator:
    schemas = _schemas(kube)
    reference = f"#/definitions/{schemas['kinds'][kind]}"
    return jsonschema.Draft7Validator({"$ref": reference, "definitions": schemas["definitions"]})


def errors(manifest: Manifest, kube: str) -> list[str]:
    """The errors for which that version would refuse the object."""
    assert kube in (OLDEST, CURRENT)
    return [] if manifest["kind"] in FOREIGN else _errors(json.dumps(manifest), kube)


@cache
def _errors(text: str, kube: str) -> list[str]:
    manifest = json.loads(text)
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    kind = f"{manifest['apiVersion']}/{manifest['kind']}"
    if kind not in _schemas(kube)["kinds"]:
        return [f"{name}: {kube} has no {kind}"]
    found = _validator(kube, kind).iter_errors(manifest)
    return [f"{name}: {error.json_path} {error.message}" for error in found]
