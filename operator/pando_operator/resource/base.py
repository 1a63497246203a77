"""Base classes of the WorkerPool's API: camelCase on the wire, no unknown fields.

The markers for `Annotated` add to the schema what Python's types cannot express.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from pando_operator.resource.rules import Rule

GROUP = "pando.dev"
VERSION = "v1alpha1"
KIND = "WorkerPool"
PLURAL = "workerpools"

Schema = dict[str, Any]
"""A structural schema of a CustomResourceDefinition."""

KubernetesObject = dict[str, Any]
"""A part of Kubernetes' own API, as on the wire."""


class SpecPart(BaseModel):
    """A part of `spec`, with the rules between its fields."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Schema:
        schema = handler(core)
        if cls.rules:
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = [
                {"rule": rule.cel, "message": rule.message} for rule in cls.rules
            ]
        return schema


class StatusPart(BaseModel):
    """A part of `status`. Fields that a newer operator added are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )


@dataclass(frozen=True, slots=True)
class Typed:
    """The value, or each item of a list, has the schema of this name in `definitions`."""

    name: str

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Schema:
        schema = handler(core)
        if schema.get("type") == "array":
            return schema | {"items": {"x-typed": self.name}}
        return {"x-typed": self.name}


@dataclass(frozen=True, slots=True)
class ListMap:
    """A list in which one field identifies each item."""

    key: str

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Schema:
        return handler(core) | {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [self.key],
        }


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object with any fields."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Schema:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
