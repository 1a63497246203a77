"""A chat's answer in OpenAI's form, whole or as chunks of a stream.

Each choice has a parser that splits its text into reasoning, content and tool calls. In a stream
each piece is one chunk.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType, structs

from pando_worker.messages import FinishReason
from pando_worker.parsers.output import OutputParser
from pando_worker.parsers.pieces import (
    CallArguments,
    CallStart,
    Content,
    Parsed,
    Piece,
    Reasoning,
)
from pando_worker.server.answers.answer import ChoiceResult
from pando_worker.server.answers.logprobs import chat_logprobs
from pando_worker.server.answers.openai_objects import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatFinish,
    ChatLogprobs,
    Function,
    Message,
    MessageDelta,
    ToolCall,
    Usage,
    usage_of,
)
from pando_worker.server.errors import ApiError
from pando_worker.server.text.reader import Delta, Finish, ScoredToken
from pando_worker.tokenizer.detokenizer import Vocabulary


@dataclass(slots=True)
class _Stream:
    """The state of one choice's stream."""

    parser: OutputParser
    has_role: bool = False
    has_calls: bool = False
    scored: list[ScoredToken] = field(default_factory=list)  # of pieces not sent yet
    token_ids: list[int] = field(default_factory=list)  # of events not sent yet


class ChatForm:
    repeats: ClassVar[bool] = False
    named: ClassVar[bool] = False

    def __init__(
        self,
        *,
        id: str,
        model: str,
        created: int,
        include_usage: bool,
        vocabulary: Vocabulary,
        logprobs: int | None,
        parsers: list[OutputParser],
        calls_finish: bool,
        tells_tokens: bool = False,
        image_tokens: int = 0,
        video_tokens: int = 0,
    ) -> None:
        """
        Args:
            logprobs: most likely tokens to show beside each token; None: no log-probabilities
            parsers: one per choice
            calls_finish: whether tool calls make the finish reason "tool_calls"
            tells_tokens: whether the last event of each delta carries the delta's token ids
            image_tokens, video_tokens: of the prompt's images and videos
        """
        self._id = id
        self._model = model
        self._created = created
        self._include_usage = include_usage
        self._vocabulary = vocabulary
        self._logprobs = logprobs
        self._calls_finish = calls_finish
        self._tells_tokens = tells_tokens
        self._image_tokens, self._video_tokens = image_tokens, video_tokens
        self._streams = [_Stream(parser) for parser in parsers]

    def whole(self, results: list[ChoiceResult]) -> ChatCompletion:
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[self._choice(index, result) for index, result in enumerate(results)],
            usage=usage_of(results, self._image_tokens, self._video_tokens),
        )

    def events(self, delta: Delta, results: list[ChoiceResult]) -> list[object]:
        stream, index = self._streams[delta.index], delta.index
        events: list[ChatChunk] = []
        if not stream.has_role:
            stream.has_role = True
            events.append(self._chunk(index, MessageDelta(role="assistant", content="")))
        pieces = stream.parser.push(delta.text)
        if delta.finish:
            pieces += stream.parser.flush()
        stream.has_calls |= any(isinstance(piece, CallStart) for piece in pieces)
        stream.scored += delta.scored
        events += [
            self._chunk(index, _delta(piece), scores=self._take_scores(stream)) for piece in pieces
        ]
        if delta.finish:
            reason = self._reason(delta.finish, stream.has_calls)
            scores = self._take_scores(stream)
            events.append(self._chunk(index, MessageDelta(), reason, scores))
        if self._tells_tokens:
            stream.token_ids += delta.token_ids
            if events:
                events[-1] = _with_tokens(events[-1], stream.token_ids)
                stream.token_ids = []
        if self._include_usage and all(result.finish for result in results):
            events.append(self._of([], usage_of(results, self._image_tokens, self._video_tokens)))
        return [*events]

    def failure(self, error: ApiError) -> msgspec.Raw:
        return msgspec.Raw(error.body)

    def _choice(self, index: int, result: ChoiceResult) -> ChatChoice:
        assert result.finish is not None
        parser, parsed = self._streams[index].parser, Parsed()
        parsed.add(parser.push(result.text))
        parsed.add(parser.flush())
        calls = [
            ToolCall(Function(call.arguments, call.name), id=call.id, type="function")
            for call in parsed.calls
        ]
        message = Message(
            parsed.content if parsed.content or not calls else None,
            reasoning_content=parsed.reasoning or UNSET,
            tool_calls=calls or UNSET,
        )
        reason = self._reason(result.finish, bool(calls))
        return ChatChoice(index, message, reason, self._scores(result.scored))

    def _reason(self, finish: Finish, has_calls: bool) -> ChatFinish:
        if has_calls and self._calls_finish and finish.reason is FinishReason.STOP:
            return "tool_calls"
        return finish.reason

    def _take_scores(self, stream: _Stream) -> ChatLogprobs | None:
        tokens, stream.scored = stream.scored, []
        return self._scores(tokens) if tokens else None

    def _scores(self, tokens: list[ScoredToken]) -> ChatLogprobs | None:
        if self._logprobs is None:
            return None
        return chat_logprobs(self._vocabulary, tokens, self._logprobs)

    def _chunk(
        self,
        index: int,
        delta: MessageDelta,
        finish: ChatFinish | None = None,
        scores: ChatLogprobs | None = None,
    ) -> ChatChunk:
        no_usage = None if self._include_usage else UNSET
        return self._of([ChatChunkChoice(index, delta, finish, scores)], no_usage)

    def _of(self, choices: list[ChatChunkChoice], usage: Usage | UnsetType | None) -> ChatChunk:
        return ChatChunk(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage
        )


def _with_tokens(chunk: ChatChunk, token_ids: list[int]) -> ChatChunk:
    [choice] = chunk.choices
    return structs.replace(chunk, choices=[structs.replace(choice, token_ids=token_ids)])


def _delta(piece: Piece) -> MessageDelta:
    match piece:
        case Reasoning(text):
            return MessageDelta(reasoning_content=text)
        case Content(text):
            return MessageDelta(content=text)
        case CallStart(index, id, name):
            call = ToolCall(Function("", name), index=index, id=id, type="function")
            return MessageDelta(tool_calls=[call])
        case CallArguments(index, text):
            return MessageDelta(tool_calls=[ToolCall(Function(text), index=index)])
