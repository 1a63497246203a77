"""The typed streams of Anthropic's messages and OpenAI's responses.

Such a stream is a sequence of marks (a block begins, a part ends, …) with pieces of text between
them. A continuation has the same marks and texts from the beginning, cut into other pieces: the
marks that the client has are dropped in order, and so is the text that it has.
"""

from abc import ABC, abstractmethod
from typing import Any

from pando_router.migration.errors import DivergedError
from pando_router.migration.events import Event
from pando_router.migration.form import Fit
from pando_router.migration.sent import Channel, Sent

CALL_IDS, RESPONSE_ID = "resume_call_ids", "resume_response_id"
"""Fields by which a Pando worker gives a continuation the ids that the client has."""


class TypedEvents(ABC):
    def read(self, event: Event, sent: Sent) -> None:
        if (piece := self._piece(event)) is not None:
            channel, text = piece
            sent.add(channel, text)
        elif (mark := self._mark(event)) is not None:
            sent.marks.append(mark)
            self._note(event, sent)
        sent.number = event.get("sequence_number", sent.number)

    def token_ids(self, event: Event, before: list[int] | None) -> list[int] | None:
        if (ids := event.get("token_ids")) is not None:
            before = [] if before is None else before
            before += ids
        return before

    def fit(self, event: Event, sent: Sent, fit: Fit) -> bool:
        event.pop("token_ids", None)
        if (piece := self._piece(event)) is not None:
            channel, text = piece
            new = fit.owed.new_part(channel, text)
            if not new:
                return False
            if fit.marks_owed:
                raise DivergedError("the new replica's text is longer than what was sent before")
            self._put(event, new)
        elif (mark := self._mark(event)) is not None:
            if fit.marks_owed:
                if fit.marks_owed.pop(0) != mark:
                    raise DivergedError("the new replica's events differ from those sent before")
                return False
            fit.owed.settle()
            self._adapt(event, sent, fit)
        if "sequence_number" in event:
            event["sequence_number"] = sent.number + 1
        return True

    @abstractmethod
    def _piece(self, event: Event) -> tuple[Channel, str] | None:
        """The text of an event that adds some, with its channel."""

    @abstractmethod
    def _put(self, event: Event, text: str) -> None:
        """Changes that text."""

    @abstractmethod
    def _mark(self, event: Event) -> tuple[Any, ...] | None:
        """What any other event says, without ids, texts and counts; None for one without meaning
        for the answer."""

    @abstractmethod
    def _note(self, event: Event, sent: Sent) -> None:
        """Records what a continuation needs to know of an event with a mark."""

    @abstractmethod
    def _adapt(self, event: Event, sent: Sent, fit: Fit) -> None:
        """Gives an event with a mark the ids and counts of the whole stream."""


class MessageEvents(TypedEvents):
    """Anthropic's."""

    _TEXTS = ("text", "thinking", "partial_json", "signature")

    def _piece(self, event: Event) -> tuple[Channel, str] | None:
        if (name := self._text_in(event)) is None:
            return None
        return (event.get("index", 0), name), event["delta"][name]

    def _put(self, event: Event, text: str) -> None:
        event["delta"][self._text_in(event)] = text

    def _text_in(self, event: Event) -> str | None:
        match event:
            case {"type": "content_block_delta", "delta": dict(delta)}:
                return next((n for n in self._TEXTS if isinstance(delta.get(n), str)), None)
        return None

    def _mark(self, event: Event) -> tuple[Any, ...] | None:
        kind, block = event.get("type"), event.get("content_block") or {}
        if kind == "ping":
            return None
        return kind, event.get("index"), block.get("type"), block.get("name")

    def _note(self, event: Event, sent: Sent) -> None:
        match event:
            case {"type": "message_start", "message": dict(message)}:
                sent.identity = {"id": message.get("id"), "model": message.get("model")}
                sent.cached_tokens = (message.get("usage") or {}).get("cache_read_input_tokens")
            case {"type": "content_block_start", "content_block": dict(block)}:
                sent.has_parts = True
                if block.get("type") == "tool_use":
                    sent.resumed.setdefault(CALL_IDS, []).append(block.get("id"))
            case {"type": "message_delta"}:
                sent.finished = True
            case {"type": "message_stop"}:
                sent.done = True

    def _adapt(self, event: Event, sent: Sent, fit: Fit) -> None:
        usage: Any = event.get("usage")
        if isinstance(message := event.get("message"), dict):
            message |= sent.identity
            usage = message.get("usage")
        match usage:
            case {"input_tokens": int(new), "cache_read_input_tokens": int(found)}:
                cached = found if fit.cached_tokens is None else fit.cached_tokens
                usage["input_tokens"] = new + found - cached
                usage["cache_read_input_tokens"] = cached


class ResponseEvents(TypedEvents):
    """OpenAI's."""

    _ENDS = ("response.completed", "response.incomplete", "response.failed")

    def _piece(self, event: Event) -> tuple[Channel, str] | None:
        match event:
            case {"type": str(kind), "output_index": int(index), "delta": str(text)}:
                return (index, kind), text
        return None

    def _put(self, event: Event, text: str) -> None:
        event["delta"] = text

    def _mark(self, event: Event) -> tuple[Any, ...] | None:
        item = event.get("item") or {}
        return event.get("type"), event.get("output_index"), item.get("type"), item.get("name")

    def _note(self, event: Event, sent: Sent) -> None:
        response, item = event.get("response"), event.get("item") or {}
        if isinstance(response, dict) and not sent.identity:
            names = ("id", "created_at", "model")
            sent.identity = {name: response[name] for name in names if name in response}
            sent.resumed[RESPONSE_ID] = response.get("id")
        if event.get("type") == "response.output_item.added":
            sent.has_parts = True
            if item.get("type") == "function_call":
                sent.resumed.setdefault(CALL_IDS, []).append(item.get("call_id"))
        if event.get("type") in self._ENDS:
            sent.finished = sent.done = True

    def _adapt(self, event: Event, sent: Sent, fit: Fit) -> None:
        if not isinstance(response := event.get("response"), dict):
            return
        response |= sent.identity
        if fit.cached_tokens is not None and (usage := response.get("usage")):
            usage["input_tokens_details"] = {"cached_tokens": fit.cached_tokens}
