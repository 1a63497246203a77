"""Parses whole outputs in tests, cut into given pieces."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pando_worker.parsers.output import OutputParser
from pando_worker.parsers.pieces import (
    CallArguments,
    CallStart,
    Content,
    Parsed,
    Piece,
    Reasoning,
)
from pando_worker.parsers.reasoning import Start
from pando_worker.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from pando_worker.parsers.tools import Tool

TOOLS = tuple(Tool(name, {"type": "object"}, strict=False) for name in ("weather", "time"))


def new_parser(
    tools: str | None = None,
    reasoning: str | None = None,
    start: Start = Start.MAY_OPEN,
    offered: Sequence[Tool] = TOOLS,
    is_shaped: bool = False,
) -> OutputParser:
    """A parser for the named formats. The calls' ids are id0, id1, ..."""
    ids = (f"id{number}" for number in itertools.count())
    calls = replace(TOOL_FORMATS[tools], new_id=lambda: next(ids)) if tools else None
    return OutputParser(
        REASONING_FORMATS[reasoning].parser(start) if reasoning else None,
        calls.parser(offered, is_shaped=is_shaped) if calls else None,
    )


def parse(parser: OutputParser, chunks: Iterable[str]) -> Parsed:
    """Also checks that the pieces can be streamed."""
    parsed = Parsed()
    for chunk in chunks:
        _add(parsed, parser.push(chunk))
    _add(parsed, parser.flush())
    return parsed


def _add(parsed: Parsed, pieces: list[Piece]) -> None:
    for piece in pieces:
        match piece:
            case Content(text) | Reasoning(text):
                assert text
            case CallStart(index, id, name):
                assert index == len(parsed.calls)
                assert id == f"id{index}"
                assert name
            case CallArguments(index, text):
                assert index == len(parsed.calls) - 1
                assert text
        parsed.add([piece])
