"""The answer of /v1/responses in OpenAI's form, whole or as the events of a stream.

The output is a list of items: reasoning, messages and calls, in the order in which the model wrote
them. Both ways make the same items: a whole answer is the end of a stream that nobody saw.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec import structs

from pando_worker.messages import FinishReason
from pando_worker.parsers.output import OutputParser
from pando_worker.parsers.pieces import CallArguments, CallStart, Content, Piece, Reasoning
from pando_worker.server.answers.answer import ChoiceResult, TokenCounts
from pando_worker.server.answers.logprobs import text_logprobs
from pando_worker.server.answers.openai_objects import ChatTokenLogprob
from pando_worker.server.answers.response_objects import (
    ArgumentsDelta,
    ArgumentsDone,
    Completed,
    Created,
    Failed,
    FunctionCall,
    Incomplete,
    IncompleteDetails,
    InProgress,
    InputTokensDetails,
    ItemAdded,
    ItemDone,
    OutputItem,
    OutputMessage,
    OutputText,
    OutputTokensDetails,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    ReasoningItem,
    ReasoningText,
    ResponseFailure,
    ResponseObject,
    ResponseUsage,
    Status,
    TextDelta,
    TextDone,
)
from pando_worker.server.answers.scored_pieces import ScoredPieces
from pando_worker.server.answers.typed_events import TokenReport, TypedEvent
from pando_worker.server.errors import ApiError, aborted
from pando_worker.server.text.reader import Delta, Finish, ScoredToken
from pando_worker.tokenizer.detokenizer import Vocabulary

Kind = type[Reasoning | Content | CallStart]
_PREFIXES: dict[Kind, str] = {Reasoning: "rs", Content: "msg", CallStart: "fc"}


@dataclass(slots=True)
class _OpenItem:
    """The item that the output is in."""

    kind: Kind
    id: str
    call: CallStart | None = None
    texts: list[str] = field(default_factory=list)
    logprobs: list[ChatTokenLogprob] = field(default_factory=list)  # of a message, if wanted

    def as_item(self, status: Status) -> OutputItem:
        text = "".join(self.texts)
        if self.call is not None:
            return FunctionCall(self.id, status, self.call.id, self.call.name, text)
        if self.kind is Reasoning:
            return ReasoningItem(self.id, status, [ReasoningText(text)] if text else [])
        parts = [OutputText(text, logprobs=self.logprobs)] if text else []
        return OutputMessage(self.id, status, parts)


class ResponseForm:
    repeats: ClassVar[bool] = False
    named: ClassVar[bool] = True

    def __init__(
        self,
        response: ResponseObject,
        parser: OutputParser,
        vocabulary: Vocabulary,
        keep: Callable[[ResponseObject], None],
        *,
        logprobs: int | None = None,
        tells_tokens: bool = False,
    ) -> None:
        """
        Args:
            response: as it is before the first token
            keep: gets the response once it is complete
            logprobs: most likely tokens to show beside each token of a text; None: texts have no
                log-probabilities
            tells_tokens: whether the last event of each delta carries the delta's token ids
        """
        self._response = response
        self._pieces = ScoredPieces(parser, wanted=logprobs is not None)
        self._top_logprobs = logprobs or 0
        self._vocabulary = vocabulary
        self._keep = keep
        self._token_report = TokenReport(wanted=tells_tokens)
        self._output: list[OutputItem] = []
        self._open: _OpenItem | None = None
        self._token_ids: list[int] = []
        self._events = 0
        self._has_begun = False

    def whole(self, results: list[ChoiceResult]) -> ResponseObject:
        [result] = results
        assert result.finish is not None
        self._token_ids = result.token_ids
        for piece, scored in self._pieces.push(result.text, result.scored, ends=True):
            list(self._events_of(piece, scored))
        return self._finished(result.finish, results)

    def events(self, delta: Delta, results: list[ChoiceResult]) -> list[object]:
        events: list[TypedEvent] = []
        if not self._has_begun:
            self._has_begun = True
            events += [Created(self._next(), self._response)]
            events += [InProgress(self._next(), self._response)]
        self._token_ids += delta.token_ids
        ends = delta.finish is not None
        for piece, scored in self._pieces.push(delta.text, delta.scored, ends=ends):
            events += self._events_of(piece, scored)
        if delta.finish:
            events += self._close(_status_of(delta.finish))
            response = self._finished(delta.finish, results)
            kinds = {"completed": Completed, "incomplete": Incomplete, "failed": Failed}
            events.append(kinds[response.status](self._next(), response))
        return self._token_report.on(events, delta)

    def failure(self, error: ApiError) -> Failed:
        return Failed(self._next(), self._failed(error))

    def _failed(self, error: ApiError) -> ResponseObject:
        failure = ResponseFailure(error.code or "server_error", error.message)
        return structs.replace(
            self._response, status="failed", error=failure, output=list(self._output)
        )

    def _finished(self, finish: Finish, results: list[ChoiceResult]) -> ResponseObject:
        status = _status_of(finish)
        list(self._close(status))
        if status == "failed":
            return self._failed(aborted())
        incomplete = IncompleteDetails("max_output_tokens") if status == "incomplete" else None
        response = structs.replace(
            self._response,
            status=status,
            completed_at=int(time.time()),
            incomplete_details=incomplete,
            output=self._output,
            usage=self._usage(results),
        )
        self._keep(response)
        return response

    def _usage(self, results: list[ChoiceResult]) -> ResponseUsage:
        counts = TokenCounts.of(results)
        return ResponseUsage(
            counts.prompt,
            InputTokensDetails(counts.cached),
            counts.completion,
            OutputTokensDetails(self._reasoning_tokens()),
            counts.prompt + counts.completion,
        )

    def _reasoning_tokens(self) -> int:
        """Tokens of the output until its reasoning, which comes first, is written."""
        match self._output:
            case [ReasoningItem(content=[ReasoningText(text)]), *_]:
                missing = len(text.encode())
            case _:
                return 0
        for count, token_id in enumerate(self._token_ids):
            if missing <= 0:
                return count
            missing -= len(self._vocabulary[token_id])
        return len(self._token_ids)

    def _events_of(self, piece: Piece, scored: list[ScoredToken]) -> Iterator[TypedEvent]:
        match piece:
            case Reasoning(text):
                yield from self._enter(Reasoning)
                yield ReasoningDelta(*self._written(text), text)
            case Content(text):
                yield from self._enter(Content)
                logprobs = text_logprobs(self._vocabulary, scored, self._top_logprobs)
                yield TextDelta(*self._written(text, logprobs), text, logprobs=logprobs)
            case CallStart():
                yield from self._close("completed")
                yield from self._begin(CallStart, piece)
            case CallArguments(_, text):
                yield ArgumentsDelta(*self._written(text), text)

    def _written(
        self, text: str, logprobs: Sequence[ChatTokenLogprob] = ()
    ) -> tuple[int, int, str]:
        """Adds text to the open item; the first fields of the event that says so."""
        assert self._open is not None
        self._open.texts.append(text)
        self._open.logprobs += logprobs
        return self._place(self._open)

    def _enter(self, kind: type[Reasoning | Content]) -> Iterator[TypedEvent]:
        if self._open is None or self._open.kind is not kind:
            yield from self._close("completed")
            yield from self._begin(kind)

    def _begin(self, kind: Kind, call: CallStart | None = None) -> Iterator[TypedEvent]:
        name = f"{_PREFIXES[kind]}_{self._response.id.partition('_')[2]}_{len(self._output)}"
        self._open = begun = _OpenItem(kind, name, call)
        yield ItemAdded(self._next(), len(self._output), begun.as_item("in_progress"))
        if call is None:
            empty = ReasoningText("") if kind is Reasoning else OutputText("")
            yield PartAdded(*self._place(begun), empty)

    def _close(self, status: Status) -> Iterator[TypedEvent]:
        if (ended := self._open) is None:
            return
        self._open = None
        text, scores = "".join(ended.texts), ended.logprobs
        if ended.call is not None:
            yield ArgumentsDone(*self._place(ended), ended.call.name, text)
        elif ended.kind is Reasoning:
            yield ReasoningDone(*self._place(ended), text)
            yield PartDone(*self._place(ended), ReasoningText(text))
        else:
            yield TextDone(*self._place(ended), text, logprobs=scores)
            yield PartDone(*self._place(ended), OutputText(text, logprobs=scores))
        item = ended.as_item(status)
        yield ItemDone(self._next(), len(self._output), item)
        self._output.append(item)

    def _place(self, item: _OpenItem) -> tuple[int, int, str]:
        return self._next(), len(self._output), item.id

    def _next(self) -> int:
        """The number of the next event."""
        self._events += 1
        return self._events - 1


def _status_of(finish: Finish) -> Status:
    match finish.reason:
        case FinishReason.STOP:
            return "completed"
        case FinishReason.LENGTH:
            return "incomplete"
        case FinishReason.ABORT:
            return "failed"
