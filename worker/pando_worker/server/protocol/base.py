"""The base class of all request bodies.

Unknown fields are ignored, as OpenAI does. A known field that this worker does not support is
refused, not ignored, unless its value has no effect.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pando_worker.server.errors import bad_request

Neutral = tuple[object, ...]
"""Values without effect; null has none either."""

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
CacheSalt = Annotated[str, Field(min_length=1, max_length=1024)]  # vLLM's
Priority = Annotated[int, Field(ge=-(2**31), lt=2**31)]  # smaller first, as in vLLM
Language = Annotated[str, Field(min_length=1, max_length=32)]  # of transformers' pipelines


class RequestBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    UNSUPPORTED: ClassVar[Mapping[str, Neutral]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name, neutral in cls.UNSUPPORTED.items():
                value = data.get(name)
                if value is not None and value not in neutral:
                    raise bad_request(
                        f"{name} is not supported by this worker yet; leave it out",
                        name,
                        "unsupported_parameter",
                    )
        return data
