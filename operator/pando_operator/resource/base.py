"""What all parts of the WorkerPool's API share: camelCase on the wire, and no unknown fields."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

GROUP = "pando.dev"
VERSION = "v1alpha1"
KIND = "WorkerPool"
PLURAL = "workerpools"

KubernetesObject = dict[str, Any]
"""A part of Kubernetes' own API as it is on the wire."""


class SpecPart(BaseModel):
    """A part of what users write."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class StatusPart(BaseModel):
    """A part of what the operator writes; what a newer operator wrote besides is left out."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )
