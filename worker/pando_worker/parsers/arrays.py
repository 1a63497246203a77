"""Reads calls in one JSON array after a marker: `<marker>[{"name": ...}, ...]<closing>`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pando_worker.parsers import lark
from pando_worker.parsers.reader import Reader
from pando_worker.parsers.scanning import BLANKS
from pando_worker.parsers.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayForm:
    markers: tuple[str, ...]  # any of them; the first one is what a grammar writes
    closing: str = ""  # after the array; it may be missing
    call: Callable[[Tool], tuple[str, str]]  # texts around the arguments, which a grammar writes

    def parser(self, new_id: Callable[[], str]) -> Reader:
        return _ArrayCalls(self, new_id).reader

    def grammar(
        self, tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool
    ) -> str:
        opening = lark.marker(self.markers[0], special_tokens)
        closing = lark.marker(self.closing, special_tokens) if self.closing else ""
        more = f"({lark.literal(', ')} object)*" if parallel else ""
        objects = []
        for tool in tools:
            before, after = map(lark.literal, self.call(tool))
            value = lark.json_value(tool.parameters, strict=tool.strict)
            objects.append(f"{before} {value} {after}")
        return "\n".join(
            [
                f"calls: {opening} array",
                lark.text_with("text_or_calls", opening, "array", many=False),
                f'array: "[" object {more} "]" {closing}',
                f"object: {' | '.join(objects)}",
            ]
        )


class _ArrayCalls:
    def __init__(self, form: ArrayForm, new_id: Callable[[], str]) -> None:
        self.reader = Reader(form.markers, new_id, self._found)
        self._closing = form.closing

    def _found(self) -> None:
        self.reader.step = self._read_bracket

    def _read_bracket(self) -> bool:
        return self.reader.read_array(self._read_separator, otherwise=self._give_back)

    def _give_back(self) -> bool:
        self.reader.give_back()
        return True

    def _read_separator(self) -> bool:
        """Read another call, or the array's end."""
        reader = self.reader
        reader.unread = text = reader.unread.lstrip(BLANKS)
        if not text:
            return False
        if text[0] == ",":
            reader.unread, reader.held = text[1:], ","
            reader.expect_call(self._read_separator)
        else:
            reader.unread = text.removeprefix("]")
            reader.step = self._read_closing
        return True

    def _read_closing(self) -> bool:
        return self.reader.read_closing(self._closing)


def named_call(tool: Tool) -> tuple[str, str]:
    return f'{{"name": {lark.literal(tool.name)}, "arguments": ', "}"
