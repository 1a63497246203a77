"""Converts pydantic's JSON schemas to the structural schemas of a CustomResourceDefinition.

Kubernetes accepts no references, no type `null` and no numeric `exclusiveMinimum`; optional fields
are simply not required.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel

from pando_operator.resource.base import Schema

_KEPT = (
    "description",
    "type",
    "enum",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)
_LONG = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations")


@cache
def definitions() -> Mapping[str, Schema]:
    """The types that `Typed` names: Kubernetes' own, and the worker's settings."""
    package = files("pando_operator.resource")
    pod: dict[str, Schema] = json.loads(package.joinpath("pod_schema.json").read_bytes())
    engine: Schema = json.loads(package.joinpath("engine_schema.json").read_bytes())
    return pod | {"Engine": engine}


def structural(model: type[BaseModel], typed: Mapping[str, Schema]) -> Schema:
    """The schema of a model with wire names; `typed` has the definitions that `Typed` names."""
    schema = model.model_json_schema(by_alias=True)
    return convert(schema, schema.get("$defs", {}), typed)


def convert(
    node: Mapping[str, Any], defs: Mapping[str, Any], typed: Mapping[str, Schema]
) -> Schema:
    """Convert a node of pydantic's JSON schema. Keys beside a reference override its target's."""
    if name := node.get("x-typed"):
        return _keep_first({"description": node.get("description")}, typed[name])
    for branch in node.get("anyOf", ()):
        if branch.get("type") != "null":
            return convert({**branch, **_without(node, "anyOf")}, defs, typed)
    if reference := node.get("$ref"):
        named = defs[reference.rsplit("/", 1)[-1]]
        return convert({**_without(named, "description"), **_without(node, "$ref")}, defs, typed)
    schema = {key: node[key] for key in (*_KEPT, *_LONG) if key in node}
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if exclusive in node:
            schema |= {bound: node[exclusive], exclusive: True}
    if "const" in node:
        schema["enum"] = [node["const"]]
    if node.get("x-kubernetes-preserve-unknown-fields"):
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if "properties" in node:
        schema["properties"] = {
            name: convert(child, defs, typed) for name, child in node["properties"].items()
        }
    if isinstance(node.get("additionalProperties"), Mapping):
        schema["additionalProperties"] = convert(node["additionalProperties"], defs, typed)
    if "items" in node:
        schema["items"] = convert(node["items"], defs, typed)
    # Without "", too: a 1.20 server reads it as null and refuses the CRD.
    if node.get("default") not in (None, [], ""):
        schema["default"] = _default(node["default"], schema)
    return schema


def _default(value: Any, schema: Schema) -> Any:
    """A default without values that the fields inside it already have as their defaults; the
    server fills those in."""
    if value is None or "properties" not in schema:
        return value
    below = {name: _default(value[name], schema["properties"][name]) for name in value}
    return {
        name: default
        for name, default in below.items()
        if default not in (None, [], {}) and default != schema["properties"][name].get("default")
    }


def _without(node: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in node.items() if name != key}


def _keep_first(first: Mapping[str, Any], rest: Schema) -> Schema:
    return {key: value for key, value in first.items() if value is not None} | {
        key: value for key, value in rest.items() if first.get(key) is None
    }
