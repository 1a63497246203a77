"""Describes each setting, as its class declares it, for command help and documentation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_settings import BaseSettings

from pando.settings.load import flag_of, is_positional, spelling

REPEATED = ", …"  # ends the type of a flag that may be given several times
_TYPES = {
    "integer": "INTEGER",
    "number": "NUMBER",
    "string": "TEXT",
    "boolean": "BOOLEAN",
    "object": "NAME=VALUE,…",
    "array": "TEXT" + REPEATED,
}
_LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One setting, in words."""

    name: str
    flag: str  # --max-total-tokens, or TRACE for a positional argument
    variable: str  # PANDO_WORKER_MAX_TOTAL_TOKENS
    type: str  # INTEGER, or [lpm|fcfs]
    description: str
    required: bool
    default: str  # empty if there is none, or if the description explains it
    limits: str  # such as "> 0, < 1"

    is_secret: bool  # then it has no flag: all users of the machine can read flags
    is_positional: bool

    @property
    def is_switch(self) -> bool:
        return self.type == "BOOLEAN"


def fields(settings_class: type[BaseSettings], flag_prefix: str = "") -> Iterator[Field]:
    """The settings of a class in its order; their flags begin with `flag_prefix`."""
    schema = settings_class.model_json_schema()
    for name, field in schema["properties"].items():
        value = _value_schema(field, schema.get("$defs", {}))
        several = value.get("type") == "array"
        choices = _choices(value.get("items", {}) if several else value)
        yield Field(
            name=name,
            flag=flag_of(flag_prefix + name) if flag_prefix else spelling(settings_class, name),
            variable=settings_class.model_config.get("env_prefix", "") + name.upper(),
            type=f"[{'|'.join(choices)}]" + REPEATED * several
            if choices
            else _TYPES[value["type"]],
            description=field["description"],
            required=name in schema.get("required", ()),
            default=_default(field.get("default")),
            is_secret=value.get("format") == "password",
            is_positional=is_positional(settings_class, name),
            limits=", ".join(f"{s} {value[key]:g}" for key, s in _LIMITS.items() if key in value),
        )


def _value_schema(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of the value itself: references resolved, the null of `X | None` left out."""
    if "$ref" in field:
        resolved: dict[str, Any] = definitions[field["$ref"].rpartition("/")[2]]
        return resolved
    if "anyOf" in field:
        (value,) = [option for option in field["anyOf"] if option.get("type") != "null"]
        return _value_schema(value, definitions)
    return field


def _choices(value: dict[str, Any]) -> list[str]:
    """The names that a value may have; empty if it is free."""
    return list(value.get("enum", [value["const"]] if "const" in value else []))


def _default(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "on" if value else "off"
        case [*items]:
            return ",".join(map(str, items))
        case dict():
            return ",".join(f"{name}={one}" for name, one in value.items())
        case _:
            return str(value)
