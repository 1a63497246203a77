"""What requests have in common whose texts become vectors: to embed, to rank and to classify."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from pando_worker.server.errors import bad_request
from pando_worker.server.protocol.base import CacheSalt, Priority, RequestBody
from pando_worker.server.protocol.chats.chat import ChatMessage, check_continued
from pando_worker.server.protocol.completions import Prompts
from pando_worker.server.protocol.openai import TruncatePromptTokens, check_truncation
from pando_worker.server.protocol.pieces import Many

MAX_INPUTS = 2048  # OpenAI's


class PooledFields(RequestBody):
    model: str | None = None
    priority: Priority | None = None
    cache_salt: CacheSalt | None = None
    truncate_prompt_tokens: TruncatePromptTokens | None = None

    @model_validator(mode="after")
    def _truncates(self) -> "PooledFields":
        check_truncation(self.truncate_prompt_tokens)
        return self


class InputsRequest(PooledFields):
    """Of texts one by one."""

    input: Prompts | None = None
    # In its place, as in vLLM: a conversation, which is one input.
    messages: Annotated[Many[ChatMessage], Field(min_length=1)] | None = None
    add_generation_prompt: bool = False
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _has_inputs(self) -> "InputsRequest":
        if (self.input is None) == (self.messages is None):
            raise bad_request("give either 'input' or 'messages'", "input")
        if self.messages is not None and self.continue_final_message:
            check_continued(self.messages, self.add_generation_prompt)
        given = self.input if isinstance(self.input, list) else []
        if len(given) > MAX_INPUTS and not isinstance(given[0], int):
            raise bad_request(
                f"a request may have at most {MAX_INPUTS} inputs, not {len(given)}", "input"
            )
        return self
