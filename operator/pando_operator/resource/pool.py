"""`WorkerPool`: the resource as the API server returns it."""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from pando_operator.resource.base import Schema
from pando_operator.resource.spec import WorkerPoolSpec
from pando_operator.resource.status import WorkerPoolStatus

NAME: Schema = {"type": "string", "maxLength": 50, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}
"""Pools give their names to a Service and, with a suffix, to pods, which allow only such names."""


class Metadata(BaseModel):
    """The metadata fields that the operator uses."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    annotations: dict[str, str] = Field(default_factory=dict)


class WorkerPool(BaseModel):
    """Read it with `parse`, which reports errors in words."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )

    metadata: Metadata
    spec: WorkerPoolSpec
    status: WorkerPoolStatus = WorkerPoolStatus()

    @property
    def name(self) -> str:
        """Also the pool's name in Redis."""
        return self.metadata.name
