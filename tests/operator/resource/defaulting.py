"""What the API server puts into an object before it looks at rules: the defaults of the schema."""

from typing import Any

from pando_operator.resource.base import Schema
from pando_operator.resource.parse import spec_schema


def defaulted(spec: dict[str, Any]) -> Any:
    return _put(spec, spec_schema())


def _put(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        missing = {
            name: child["default"]
            for name, child in known.items()
            if "default" in child and name not in value
        }
        return {name: _put(child, known[name]) for name, child in {**value, **missing}.items()}
    if isinstance(value, list):
        return [_put(item, schema["items"]) for item in value]
    if schema.get("type") == "number":
        return float(value)
    return value
