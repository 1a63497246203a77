"""The answer of /v1/messages in Anthropic's form, whole or as the events of a stream."""

from typing import ClassVar

import msgspec

from pando_fleet.http.anthropic_errors import AnthropicError, anthropic_error
from pando_worker.messages import FinishReason
from pando_worker.parsers.output import OutputParser
from pando_worker.parsers.pieces import (
    CallArguments,
    CallStart,
    Content,
    Parsed,
    ParsedCall,
    Piece,
    Reasoning,
)
from pando_worker.server.answers.answer import ChoiceResult
from pando_worker.server.answers.anthropic_objects import (
    Added,
    AnswerBlock,
    AnswerMessage,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputAdded,
    MessageEnd,
    MessageStart,
    MessageStop,
    Stopped,
    TextAdded,
    TextBlock,
    ThinkingAdded,
    ThinkingBlock,
    ToolUseBlock,
    message_usage_of,
)
from pando_worker.server.answers.typed_events import TokenReport, TypedEvent
from pando_worker.server.errors import ApiError, aborted
from pando_worker.server.text.reader import Delta, Finish


class MessageForm:
    repeats: ClassVar[bool] = False
    named: ClassVar[bool] = True

    def __init__(
        self, *, request_id: str, model: str, parser: OutputParser, tells_tokens: bool = False
    ) -> None:
        self._request_id = request_id
        self._model = model
        self._parser = parser
        self._token_report = TokenReport(wanted=tells_tokens)
        # Of the stream.
        self._has_begun = False
        self._blocks = 0
        self._open: type[Piece] | None = None  # what the last block consists of, until its end
        self._has_calls = False

    def whole(self, results: list[ChoiceResult]) -> AnswerMessage:
        """Raises ApiError 409 if another request aborted this one: Anthropic has no word for it."""
        [result] = results
        assert result.finish is not None
        if result.finish.reason is FinishReason.ABORT:
            raise aborted()
        parsed = Parsed()
        parsed.add(self._parser.push(result.text))
        parsed.add(self._parser.flush())
        content: list[AnswerBlock] = []
        if parsed.reasoning:
            content.append(ThinkingBlock(parsed.reasoning))
        if parsed.content:
            content.append(TextBlock(parsed.content))
        content += map(_tool_use, parsed.calls)
        return self._message(results, content, _stopped(result.finish, bool(parsed.calls)))

    def events(self, delta: Delta, results: list[ChoiceResult]) -> list[object]:
        events: list[TypedEvent] = []
        if not self._has_begun:
            self._has_begun = True
            events.append(MessageStart(self._message(results, [], None)))
        pieces = self._parser.push(delta.text)
        if delta.finish:
            pieces += self._parser.flush()
        for piece in pieces:
            events += self._events_of(piece)
        if delta.finish and delta.finish.reason is FinishReason.ABORT:
            return [*self._token_report.on(events, delta), self.failure(aborted())]
        if delta.finish:
            events += self._close()
            stopped = _stopped(delta.finish, self._has_calls)
            events += [MessageEnd(stopped, message_usage_of(results)), MessageStop()]
        return self._token_report.on(events, delta)

    def _events_of(self, piece: Piece) -> list[TypedEvent]:
        match piece:
            case Reasoning(text):
                return self._added(Reasoning, ThinkingBlock(""), ThinkingAdded(text))
            case Content(text):
                return self._added(Content, TextBlock(""), TextAdded(text))
            case CallStart(_, id, name):
                self._has_calls = True
                return [*self._close(), self._begin(CallStart, ToolUseBlock(id, name, {}))]
            case CallArguments(_, text):
                return [BlockDelta(self._blocks - 1, InputAdded(text))]

    def _added(self, kind: type[Piece], empty: AnswerBlock, added: Added) -> list[TypedEvent]:
        begin = [] if self._open is kind else [*self._close(), self._begin(kind, empty)]
        return [*begin, BlockDelta(self._blocks - 1, added)]

    def _begin(self, kind: type[Piece], empty: AnswerBlock) -> BlockStart:
        self._open = kind
        self._blocks += 1
        return BlockStart(self._blocks - 1, empty)

    def _close(self) -> list[TypedEvent]:
        if self._open is None:
            return []
        self._open = None
        return [BlockStop(self._blocks - 1)]

    def failure(self, error: ApiError) -> AnthropicError:
        return anthropic_error(error.status, error.message, self._request_id)

    def _message(
        self, results: list[ChoiceResult], content: list[AnswerBlock], stopped: Stopped | None
    ) -> AnswerMessage:
        return AnswerMessage(
            id=f"msg_{self._request_id}",
            model=self._model,
            content=content,
            stop_reason=stopped.stop_reason if stopped else None,
            stop_sequence=stopped.stop_sequence if stopped else None,
            usage=message_usage_of(results),
        )


def _tool_use(call: ParsedCall) -> ToolUseBlock:
    """Arguments that max_tokens cut off, so that they are no JSON object, become an empty one."""
    try:
        msgspec.json.decode(call.arguments, type=dict[str, object])
    except msgspec.DecodeError:
        return ToolUseBlock(call.id, call.name, {})
    return ToolUseBlock(call.id, call.name, msgspec.Raw(call.arguments.encode()))


def _stopped(finish: Finish, has_calls: bool) -> Stopped:
    if finish.reason is FinishReason.LENGTH:
        return Stopped("max_tokens", None)
    if isinstance(finish.matched, str):
        return Stopped("stop_sequence", finish.matched)
    return Stopped("tool_use" if has_calls else "end_turn", None)
