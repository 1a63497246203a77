"""Quantities as strings: YAML allows numbers, but server-side apply on older servers does not."""

from typing import Any

_MAPS = ("limits", "requests")
_SINGLE = ("sizeLimit", "divisor")


def as_text(value: Any) -> Any:
    """A part of a pod, with all its quantities as strings."""
    if isinstance(value, list | tuple):
        return [as_text(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _field(name, child) for name, child in value.items()}


def _field(name: str, value: Any) -> Any:
    if name in _MAPS and isinstance(value, dict):
        return {resource: str(quantity) for resource, quantity in value.items()}
    if name in _SINGLE and value is not None:
        return str(value)
    return as_text(value)
