"""Requests that generate nothing: vLLM's /tokenize and /detokenize, SGLang's /abort_request."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from pando_worker.server.errors import bad_request
from pando_worker.server.protocol.base import RequestBody, TokenId
from pando_worker.server.protocol.chats.chat import ChatMessage, check_continued
from pando_worker.server.protocol.pieces import Many


class TokenizeRequest(RequestBody):
    """POST /tokenize, for a prompt or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[Many[ChatMessage], Field(min_length=1)] | None = None
    tools: Many[dict[str, Any]] | None = None
    add_special_tokens: bool = True  # for a prompt; a chat template adds its own
    add_generation_prompt: bool | None = None  # None: unless the last message is continued
    continue_final_message: bool = False
    return_token_strs: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None

    @model_validator(mode="after")
    def _prompt_or_messages(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise bad_request("give either prompt or messages", "prompt")
        if self.messages is not None and self.continue_final_message:
            check_continued(self.messages, self.add_generation_prompt)
        return self


class DetokenizeRequest(RequestBody):
    """POST /detokenize"""

    model: str | None = None
    tokens: Many[TokenId]


class AbortRequest(RequestBody):
    """POST /abort_request: `rid` is the request's x-request-id, or the rid given to /generate."""

    rid: str
