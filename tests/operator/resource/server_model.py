"""How an API server handles a spec that fits the CRD's schema: it fills in the defaults, then
evaluates the rules of each part. Everything is read from the CRD."""

from collections.abc import Iterator
from typing import Any

import cel

from pando_operator.resource.base import Schema
from pando_operator.resource.crd import crd

SPEC: Schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def refusals(spec: dict[str, Any]) -> set[str]:
    """Paths and messages of the broken rules."""
    return set(_broken(_defaulted(spec, SPEC), SPEC, "spec"))


def rules(schema: Schema = SPEC, path: str = "spec") -> Iterator[str]:
    """The rules of all parts; list items have no index."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"{path} {rule['message']}"
    for name, child in schema.get("properties", {}).items():
        yield from rules(child, f"{path}.{name}")
    if "items" in schema:
        yield from rules(schema["items"], f"{path}[]")


def _broken(value: Any, schema: Schema, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if cel.evaluate(rule["rule"], {"self": value}) is not True:
            yield f"{path} {rule['message']}"
    if isinstance(value, dict):
        for name, child in schema.get("properties", {}).items():
            if name in value:
                yield from _broken(value[name], child, f"{path}.{name}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _broken(item, schema["items"], f"{path}[{index}]")


def _defaulted(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        missing = {
            name: child["default"]
            for name, child in known.items()
            if "default" in child and name not in value
        }
        return {name: _defaulted(one, known[name]) for name, one in {**value, **missing}.items()}
    if isinstance(value, list):
        return [_defaulted(item, schema["items"]) for item in value]
    if schema.get("type") == "number":
        return float(value)
    return value
