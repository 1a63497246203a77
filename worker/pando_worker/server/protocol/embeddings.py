"""POST /v1/embeddings."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pando_worker.server.errors import bad_request
from pando_worker.server.protocol.base import CacheSalt, Priority, RequestBody
from pando_worker.server.protocol.completions import Prompts
from pando_worker.server.protocol.openai import TruncatePromptTokens, check_truncation

MAX_INPUTS = 2048  # OpenAI's


class EmbeddingRequest(RequestBody):
    model: str
    input: Prompts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    priority: Priority | None = None
    cache_salt: CacheSalt | None = None
    truncate_prompt_tokens: TruncatePromptTokens | None = None

    @model_validator(mode="after")
    def _can_be_done(self) -> "EmbeddingRequest":
        check_truncation(self.truncate_prompt_tokens)
        many = isinstance(self.input, list) and self.input and not isinstance(self.input[0], int)
        if many and len(self.input) > MAX_INPUTS:
            raise bad_request(
                f"a request may have at most {MAX_INPUTS} inputs, not {len(self.input)}", "input"
            )
        return self
