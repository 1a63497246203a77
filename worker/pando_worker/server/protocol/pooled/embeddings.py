"""POST /v1/embeddings."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pando_worker.server.protocol.base import Neutral
from pando_worker.server.protocol.pooled.fields import InputsRequest


class EmbeddingRequest(InputsRequest):
    UNSUPPORTED: ClassVar[Mapping[str, Neutral]] = {
        "chat_template": (),
        "mm_processor_kwargs": ({},),
    }

    model: str
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
