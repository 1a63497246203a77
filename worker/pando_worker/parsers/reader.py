"""Reads an output step by step: text up to a format's marker, then the format's own steps.

A step reads a part of `unread`, sets the next `step`, and returns whether to continue with the
rest; False waits for more text. Formats add their own steps to those here.
"""

from collections.abc import Callable

from pando_worker.parsers.call_object import CallObject, State
from pando_worker.parsers.emitter import Emitter
from pando_worker.parsers.pieces import Piece
from pando_worker.parsers.scanning import BLANKS, Until

Step = Callable[[], bool]


class Reader:
    """A `TextParser`."""

    def __init__(
        self,
        marker: str,
        new_id: Callable[[], str],
        found: Callable[[], None],
        is_tool: Callable[[str], bool] = bool,
    ) -> None:
        """`found` sets the next step once the marker is read; `is_tool` is passed to CallObject."""
        self.unread = ""
        self.held = ""  # read already; it is text unless a call follows
        self.out = Emitter(new_id)
        self.step: Step = self.read_text
        self._marker = marker
        self._text = Until(marker)
        self._found = found
        self._is_tool = is_tool
        self._call: CallObject | None = None
        self._after_call: Step = self.read_text

    def push(self, text: str) -> list[Piece]:
        self.unread += text
        while self.unread and self.step():
            pass
        return self.out.take()

    def flush(self) -> list[Piece]:
        if self._call is not None:
            self._call.flush()
            self._read_call()
        self.out.content(self.held + self._text.flush() + self.unread)
        return self.out.take()

    def read_text(self) -> bool:
        before, after = self._text.push(self.unread)
        self.out.content(before)
        self.unread = after or ""
        if after is not None:
            self.held = self._text.gap + self._marker
            self._found()
        return True

    def give_back(self) -> None:
        """Emit the held text as content, and continue with text."""
        self.out.content(self.held)
        self.held, self.step = "", self.read_text

    def expect_call(self, after: Step) -> None:
        """Read a call that is a JSON object next, then the step `after`."""
        self._call, self.step, self._after_call = CallObject(self._is_tool), self._read_call, after

    def _read_call(self) -> bool:
        assert self._call is not None
        arguments, self.unread = self._call.push(self.unread)
        self.out.call_object(self._call, arguments)
        if self._call.state is State.DONE:
            self._call, self.held, self.step = None, "", self._after_call
        elif self._call.state is State.NO_CALL:
            self.held += self._call.given_back
            self._call = None
            self.give_back()
        return True

    def read_separator(self, separator: str, closing: str) -> bool:
        """Read another call like the last one, or text, after `closing` if it is there."""
        self.unread = text = self.unread.lstrip(BLANKS)
        if not text:
            return False
        if text[0] == separator:
            self.unread, self.held = text[1:], separator
            self.expect_call(self._after_call)
        else:
            self.unread, self.step = text.removeprefix(closing), self.read_text
        return True

    def read_closing(self, tag: str) -> bool:
        """Read the closing tag, which some models forget, and then text."""
        self.unread = self.unread.lstrip(BLANKS)
        if tag.startswith(self.unread) and self.unread != tag:
            return False
        self.unread, self.step = self.unread.removeprefix(tag), self.read_text
        return True
