"""Fields common to OpenAI's chat and text completions."""

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from pando_worker.server.errors import bad_request
from pando_worker.server.protocol.base import CacheSalt, Priority, RequestBody, TokenId
from pando_worker.server.protocol.pieces import Many
from pando_worker.server.protocol.sampling import SamplingFields

MAX_TOP_LOGPROBS = 20
TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]

TruncatePromptTokens = Annotated[int, Field(ge=-1)]
"""How many of the prompt's tokens to keep; -1: as many as fit; None: refuse a long prompt."""


def check_truncation(keep_last: int | None) -> None:
    if keep_last == 0:
        raise bad_request(
            "truncate_prompt_tokens is 0: keep at least one token",
            "truncate_prompt_tokens",
        )


class StreamOptions(RequestBody):
    include_usage: bool = False


class OpenAIFields(SamplingFields):
    model: str
    max_tokens: Annotated[int, Field(ge=0)] | None = None  # 0: only the echoed prompt
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    priority: Priority | None = None
    resume_token_ids: Many[TokenId] = Field(default_factory=list)
    cache_salt: CacheSalt | None = None
    truncate_prompt_tokens: TruncatePromptTokens | None = None
    # OpenAI's and vLLM's constraints, read by `server/jobs/constraints.py`.
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @field_validator("stream", mode="before")
    @classmethod
    def _null_is_false(cls, value: object) -> object:
        return False if value is None else value

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> "OpenAIFields":
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options is only allowed with stream: true", "stream_options")
        check_truncation(self.truncate_prompt_tokens)
        return self
