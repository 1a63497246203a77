"""Reads an output step by step: text up to one of a format's markers, then the format's own steps.

A step reads a part of `unread`, sets the next `step`, and returns whether to continue with the
rest; False waits for more text. Formats add their own steps to those here.
"""

from collections.abc import Callable

from pando_worker.parsers.call_object import CallObject, State
from pando_worker.parsers.emitter import Emitter
from pando_worker.parsers.pieces import Piece
from pando_worker.parsers.scanning import BLANKS, MAX_BLANKS, JsonEnd, Until

Step = Callable[[], bool]


class Reader:
    """A `TextParser`."""

    def __init__(
        self,
        markers: str | tuple[str, ...],
        new_id: Callable[[], str],
        found: Callable[[], None],
        is_tool: Callable[[str], bool] = bool,
    ) -> None:
        """`found` sets the next step once a marker is read; `is_tool` is passed to CallObject."""
        self.unread = ""
        self.held = ""  # read already; it is text unless a call follows
        self.out = Emitter(new_id)
        self.step: Step = self.read_text
        self._text = Until(*([markers] if isinstance(markers, str) else markers))
        self._found = found
        self._is_tool = is_tool
        self._call: CallObject | None = None
        self._after_call: Step = self.read_text
        self._arguments = JsonEnd()
        self._after_arguments: Step = self.read_text

    @property
    def marker(self) -> str:
        """The one that was read last."""
        return self._text.marker

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
            self.held = self._text.gap + self._text.marker
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
        elif self._call.state is not State.UNDECIDED:
            self.held = ""  # a call follows, even if the output ends within it
        return True

    def expect_arguments(self, after: Step) -> None:
        """Read an object next, the arguments of a call whose name was read, then the step
        `after`."""
        self._arguments, self.step = JsonEnd(), self._read_arguments
        self._after_arguments = after

    def _read_arguments(self) -> bool:
        end = self._arguments.find(self.unread)
        cut = len(self.unread) if end < 0 else end
        self.out.arguments(self.unread[:cut])
        self.unread = self.unread[cut:]
        if end >= 0:
            self.step = self._after_arguments
        return True

    def read_array(self, after_call: Step, otherwise: Step) -> bool:
        """Read an array's bracket, then a call and the step `after_call`; the step `otherwise` if
        there is none."""
        text = self.unread.lstrip(BLANKS)
        blanks = self.unread[: len(self.unread) - len(text)]
        if not text and len(blanks) < MAX_BLANKS:
            return False
        if len(blanks) < MAX_BLANKS and text[0] == "[":
            self.unread = text[1:]
            self.held += blanks + "["
            self.expect_call(after_call)
        else:
            self.step = otherwise
        return True

    def read_separator(self, separator: str, closing: str) -> bool:
        """Read another call like the last one, or text, after `closing` if it is there."""
        self.unread = text = self.unread.lstrip(BLANKS)
        if not text or (closing.startswith(text) and text != closing):
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
