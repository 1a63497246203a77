"""Collects a tool parser's pieces: numbers the calls, and drops the white space around them, which
belongs to the format."""

from collections.abc import Callable

from pando_worker.parsers.call_object import CallObject, State
from pando_worker.parsers.pieces import CallArguments, CallStart, Content, Piece
from pando_worker.parsers.scanning import BLANKS

_IS_CALL = (State.ARGUMENTS, State.CLOSING, State.DONE)


class Emitter:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._pieces: list[Piece] = []
        self._calls = 0
        self._announced: CallObject | None = None
        self._after_call = False

    def content(self, text: str) -> None:
        if self._after_call:
            text = text.lstrip(BLANKS)
        if text:
            self._after_call = False
            self._pieces.append(Content(text))

    def call_object(self, call: CallObject, arguments: str) -> None:
        """Emit a result of `call.push`."""
        if call.state in _IS_CALL:
            if self._announced is not call:
                self._announced = call
                self.call(call.name)
            self.arguments(arguments)

    def call(self, name: str, call_id: str | None = None) -> None:
        """`call_id` is the model's own, if its templates want that in later messages."""
        self._pieces.append(CallStart(self._calls, call_id or self._new_id(), name))
        self._calls += 1
        self._after_call = True

    def arguments(self, text: str) -> None:
        """Emit arguments of the last announced call."""
        if text:
            self._pieces.append(CallArguments(self._calls - 1, text))

    def take(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces
