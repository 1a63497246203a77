"""`spec.adapters` of a WorkerPool: LoRA adapters of its model, and what its status says of each.

Changing the list changes no pod: the operator loads and unloads adapters on running replicas.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from pando_operator.resource.base import SpecPart, StatusPart
from pando_operator.resource.rules import Rule

MOST_ADAPTERS = 256
STATE_CHARS = 512

NAME = Field(
    min_length=1,
    max_length=128,
    pattern=r"^[A-Za-z0-9]([-A-Za-z0-9._:/@+]*[A-Za-z0-9])?$",
    description="name in the API: requests name it as their model",
)


class Adapter(SpecPart):
    """One LoRA adapter of the pool's model."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "preload",
            "must not be false where pin is true: a pinned adapter is always loaded",
            "!self.pin || self.preload",
        ),
    )

    name: Annotated[str, NAME]
    source: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4096,
            description="Hugging Face hub id, or a directory in the pod, with adapter_config.json"
            " and the weights of PEFT. Another source under the same name replaces the adapter,"
            " one replica at a time",
        ),
    ]
    pin: Annotated[
        bool, Field(description="keep it in device memory, whatever other adapters need")
    ] = False
    preload: Annotated[
        bool, Field(description="a new replica is not ready before it has loaded the adapter")
    ] = True


class AdapterStatus(StatusPart):
    """One adapter of the spec, or one that was removed from it and that a replica still has."""

    name: str
    source: str
    identity: Annotated[
        str, Field(description="digest of the weights that the source had when it was loaded")
    ] = ""
    ready: Annotated[int, Field(ge=0, description="replicas that have it as the spec says")] = 0
    replicas: Annotated[int, Field(ge=0, description="replicas that should have it")] = 0
    removing: Annotated[
        bool, Field(description="it is no longer in the spec, but replicas still have it")
    ] = False
    failing: Annotated[bool, Field(description="a replica refuses it, as state says")] = False
    state: Annotated[
        str, Field(max_length=STATE_CHARS, description="such as Ready 3/4: llama-x2: no space left")
    ] = ""

    @property
    def is_everywhere(self) -> bool:
        return self.ready == self.replicas > 0
