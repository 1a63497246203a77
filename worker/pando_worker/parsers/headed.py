"""Reads calls that have a head with the name, then their arguments as JSON, between special tokens:
`<section><begin>head{...}<closings>`. The formats of DeepSeek, Kimi and gpt-oss are such."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pando_worker.parsers import lark
from pando_worker.parsers.reader import Reader
from pando_worker.parsers.scanning import BLANKS, MAX_BLANKS
from pando_worker.parsers.tools import Tool

NAME = r"(?P<name>[\w.-]{1,256})"
_MAX_HEAD_CHARS = MAX_BLANKS


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadedForm:
    section: str = ""  # before the first call, if the format has that
    begin: str
    # From `begin` to the arguments, with a group `name`, and `id` if the model gives one.
    head: re.Pattern[str]
    closings: tuple[str, ...]  # what may follow the arguments, in any order
    # What a grammar writes around the arguments, given the tool's name.
    written: Callable[[str, Mapping[str, int]], tuple[str, str]] = lambda name, tokens: (name, "")
    between: str = ""  # white space between two calls
    end: str = ""  # after the last call

    @property
    def markers(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.section, self.begin)))

    def parser(self, new_id: Callable[[], str]) -> Reader:
        return _HeadedCalls(self, new_id).reader

    def grammar(
        self, tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool
    ) -> str:
        begin = lark.marker(self.begin, special_tokens)
        opening = lark.marker(self.section or self.begin, special_tokens)
        between = lark.literal(self.between) if self.between else ""
        again = f"({between} {begin} one)*" if parallel else ""
        end = lark.marker(self.end, special_tokens) if self.end else ""
        bodies = []
        for tool in tools:
            before, after = self.written(tool.name, special_tokens)
            value = lark.json_value(tool.parameters, strict=tool.strict)
            bodies.append(f"{before} {value} {after}")
        return "\n".join(
            [
                f"calls: {opening} body",
                lark.text_with("text_or_calls", opening, "body", many=False),
                f"body: {begin if self.section else ''} one {again} {end}",
                f"one: {' | '.join(bodies)}",
            ]
        )


class _HeadedCalls:
    def __init__(self, form: HeadedForm, new_id: Callable[[], str]) -> None:
        self.reader = Reader(form.markers, new_id, self._found)
        self._form = form

    def _found(self) -> None:
        begins = self.reader.marker == self._form.begin
        self.reader.step = self._read_head if begins else self._read_begin

    def _read_begin(self) -> bool:
        reader, begin = self.reader, self._form.begin
        text = reader.unread.lstrip(BLANKS)
        blanks = reader.unread[: len(reader.unread) - len(text)]
        if len(blanks) < MAX_BLANKS and begin.startswith(text) and text != begin:
            return False
        if len(blanks) < MAX_BLANKS and text.startswith(begin):
            reader.held += blanks + begin
            reader.unread = text.removeprefix(begin)
            reader.step = self._read_head
        else:
            reader.give_back()
        return True

    def _read_head(self) -> bool:
        reader = self.reader
        at = reader.unread.find("{", 0, _MAX_HEAD_CHARS)
        if at < 0 and len(reader.unread) < _MAX_HEAD_CHARS:
            return False
        head = self._form.head.fullmatch(reader.unread, 0, at) if at >= 0 else None
        if head is None:
            reader.give_back()
        else:
            reader.out.call(head["name"], head.groupdict().get("id"))
            reader.unread, reader.held = reader.unread[at:], ""
            reader.expect_arguments(self._read_closings)
        return True

    def _read_closings(self) -> bool:
        reader, form = self.reader, self._form
        reader.unread = text = reader.unread.lstrip(BLANKS)
        if found := next(filter(text.startswith, form.closings), None):
            reader.unread = text.removeprefix(found)
        elif any(
            known.startswith(text) and known != text for known in (form.begin, *form.closings)
        ):
            return False
        elif text.startswith(form.begin):
            reader.unread, reader.held = text.removeprefix(form.begin), form.begin
            reader.step = self._read_head
        else:
            reader.step = reader.read_text
        return True
