"""Anthropic's answer objects and events, as encoded; the tag of each is its `type`."""

from typing import Any, Literal

import msgspec

from pando_worker.server.answers.answer import ChoiceResult, TokenCounts
from pando_worker.server.answers.typed_events import TypedEvent

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str = ""  # nothing is encrypted here


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw | dict[str, Any]


AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(msgspec.Struct, frozen=True):
    input_tokens: int  # those that were not cached
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0  # no prompt is charged for what stays cached


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageStart(TypedEvent, frozen=True, tag="message_start"):
    message: AnswerMessage


class BlockStart(TypedEvent, frozen=True, tag="content_block_start"):
    index: int
    content_block: AnswerBlock


class TextAdded(msgspec.Struct, frozen=True, tag_field="type", tag="text_delta"):
    text: str


class ThinkingAdded(msgspec.Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    thinking: str


class InputAdded(msgspec.Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    partial_json: str


Added = TextAdded | ThinkingAdded | InputAdded


class BlockDelta(TypedEvent, frozen=True, tag="content_block_delta"):
    index: int
    delta: Added


class BlockStop(TypedEvent, frozen=True, tag="content_block_stop"):
    index: int


class Stopped(msgspec.Struct, frozen=True):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageEnd(TypedEvent, frozen=True, tag="message_delta"):
    delta: Stopped
    usage: MessageUsage


class MessageStop(TypedEvent, frozen=True, tag="message_stop"):
    pass


def message_usage_of(results: list[ChoiceResult]) -> MessageUsage:
    counts = TokenCounts.of(results)
    return MessageUsage(counts.prompt - counts.cached, counts.completion, counts.cached)
