"""The objects and events of OpenAI's responses, as encoded; the tag of each is its `type`."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from pando_worker.server.answers.openai_objects import ChatTokenLogprob
from pando_worker.server.answers.typed_events import TypedEvent

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    text: str
    annotations: tuple[()] = ()
    logprobs: Sequence[ChatTokenLogprob] = ()


class ReasoningText(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    text: str


Part = OutputText | ReasoningText


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    id: str
    status: Status
    content: list[ReasoningText]
    summary: tuple[()] = ()


class OutputMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    id: str
    status: Status
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class FunctionCall(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    id: str
    status: Status
    call_id: str
    name: str
    arguments: str


OutputItem = ReasoningItem | OutputMessage | FunctionCall


class InputTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class OutputTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: Literal["max_output_tokens"]


class ResponseFailure(msgspec.Struct, frozen=True):
    code: str
    message: str


class ReasoningWanted(msgspec.Struct, frozen=True):
    effort: str | None
    summary: None = None


class TextWanted(msgspec.Struct, frozen=True):
    format: dict[str, Any]


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # first: routers find it in an answer's first bytes
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status
    background: Literal[False] = False
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: ReasoningWanted
    store: bool
    temperature: float | None
    text: TextWanted
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float | None
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None = None
    user: str | None


class _OfResponse(TypedEvent, frozen=True):
    sequence_number: int
    response: ResponseObject


class Created(_OfResponse, frozen=True, tag="response.created"):
    pass


class InProgress(_OfResponse, frozen=True, tag="response.in_progress"):
    pass


class Completed(_OfResponse, frozen=True, tag="response.completed"):
    pass


class Incomplete(_OfResponse, frozen=True, tag="response.incomplete"):
    pass


class Failed(_OfResponse, frozen=True, tag="response.failed"):
    pass


class _OfItem(TypedEvent, frozen=True):
    sequence_number: int
    output_index: int
    item: OutputItem


class ItemAdded(_OfItem, frozen=True, tag="response.output_item.added"):
    pass


class ItemDone(_OfItem, frozen=True, tag="response.output_item.done"):
    pass


class _OfPart(TypedEvent, frozen=True):
    sequence_number: int
    output_index: int
    item_id: str


class PartAdded(_OfPart, frozen=True, tag="response.content_part.added"):
    part: Part
    content_index: Literal[0] = 0


class PartDone(_OfPart, frozen=True, tag="response.content_part.done"):
    part: Part
    content_index: Literal[0] = 0


class TextDelta(_OfPart, frozen=True, tag="response.output_text.delta"):
    delta: str
    content_index: Literal[0] = 0
    logprobs: Sequence[ChatTokenLogprob] = ()


class TextDone(_OfPart, frozen=True, tag="response.output_text.done"):
    text: str
    content_index: Literal[0] = 0
    logprobs: Sequence[ChatTokenLogprob] = ()


class ReasoningDelta(_OfPart, frozen=True, tag="response.reasoning_text.delta"):
    delta: str
    content_index: Literal[0] = 0


class ReasoningDone(_OfPart, frozen=True, tag="response.reasoning_text.done"):
    text: str
    content_index: Literal[0] = 0


class ArgumentsDelta(_OfPart, frozen=True, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(_OfPart, frozen=True, tag="response.function_call_arguments.done"):
    name: str
    arguments: str
