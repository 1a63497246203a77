"""OpenAI's answer objects, as encoded. The JSON omits fields that are UNSET."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from pando_worker.messages import FinishReason
from pando_worker.server.answers.answer import ChoiceResult, TokenCounts


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int
    image_tokens: int | UnsetType = UNSET  # of a prompt with images
    video_tokens: int | UnsetType = UNSET  # of a prompt with videos


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None


class ChatTokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[ChatTokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Parallel lists; a prompt's first token has no log-probability."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class Function(msgspec.Struct, frozen=True):
    arguments: str
    name: str | UnsetType = UNSET  # absent in a stream's later pieces, which extend the arguments


class ToolCall(msgspec.Struct, frozen=True):
    """A call, or in a stream a piece of one: the first has id, type and name, others arguments."""

    function: Function
    index: int | UnsetType = UNSET  # in a stream
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Message(msgspec.Struct, frozen=True):
    content: str | None
    role: Literal["assistant"] = "assistant"
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


ChatFinish = FinishReason | Literal["tool_calls"]


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: Message
    finish_reason: ChatFinish
    logprobs: ChatLogprobs | None = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class MessageDelta(msgspec.Struct, frozen=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: MessageDelta
    finish_reason: ChatFinish | None = None
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET  # if a router asked for them


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET


class CompletionChoice(msgspec.Struct, frozen=True):
    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: CompletionLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET  # in a stream, if a router asked for them


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Also one chunk of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET


def usage_of(results: list[ChoiceResult], image_tokens: int = 0, video_tokens: int = 0) -> Usage:
    counts = TokenCounts.of(results)
    return Usage(
        counts.prompt,
        counts.completion,
        counts.prompt + counts.completion,
        PromptTokensDetails(counts.cached, image_tokens or UNSET, video_tokens or UNSET),
    )
