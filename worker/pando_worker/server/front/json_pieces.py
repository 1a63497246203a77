"""JSON of many values, read in pieces, so that compiled code never keeps the interpreter's lock
for long. It takes some five times as long as in one piece.

Objects, and lists of anything but numbers, are read by the standard library's reader in Python.
Numbers, such as token ids, are read some thousand at a time.
"""

import json
import re
from collections.abc import Callable
from json.decoder import (  # type: ignore[attr-defined]  # typeshed has none
    JSONArray,
    JSONObject,
    scanstring,
)
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from pydantic_core import from_json

from pando_fleet.http.off_loop import let_the_loop_turn
from pando_worker.server.front.long_texts import leave_out

MANY = 4096  # values, which are read in about 1 ms

_COUNTED = 1 << 16  # bytes, as MANY commas are mostly found in the first of them

Scan = Callable[[str, int], tuple[Any, int]]
"""Reads the value that starts there; and its end."""

_NUMBERS = re.compile(r"[-+.\deE, \t\n\r]{1,8192}")


def has_many_values(data: bytes) -> bool:
    """Whether it may have: commas in its texts count, too."""
    commas = 0
    for start in range(0, len(data), _COUNTED):
        commas += data.count(b",", start, start + _COUNTED)
        if commas > MANY:
            return True
    return False


def read_in_pieces(data: bytes) -> Any:
    """As `json.loads`, whose errors it raises."""
    let_the_loop_turn()
    return _READER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))


def read_long(data: bytes) -> Any:
    """As `json.loads`, but for names of more than 64 KiB and encodings other than UTF-8, which are
    refused."""
    left_out = leave_out(data)
    reader = _Reader(left_out.parse_string)
    try:
        return reader.decode(left_out.json)
    except json.JSONDecodeError as error:
        raise left_out.moved(error) from None


def _array(text_and_start: tuple[str, int], scan_once: Scan) -> tuple[list[Any], int]:
    """The list whose bracket is before the start, and its end. As `JSONArray`, which reads what
    follows the numbers, and what is wrong with them."""
    text, start = text_and_start
    values: list[Any] = []
    while found := _NUMBERS.match(text, start):
        end = text.rfind(",", start, found.end())
        try:
            piece = from_json(f"[{text[start:end]}]") if end > start else []
        except ValueError:
            break
        if not piece:
            break
        values += piece
        start = end + 1
        let_the_loop_turn()
    rest: list[Any]
    rest, end = JSONArray((text, start), _in_turns(scan_once))
    if not values:
        return rest, end
    if not rest:  # a comma, then the bracket
        raise json.JSONDecodeError("Expecting value", text, end - 1)
    values += rest
    return values, end


def _object(
    text_and_start: tuple[str, int], strict: bool, scan_once: Scan, *hooks_and_memo: Any
) -> tuple[dict[str, Any], int]:
    """As `JSONObject`."""
    found: tuple[dict[str, Any], int] = JSONObject(
        text_and_start, strict, _in_turns(scan_once), *hooks_and_memo
    )
    return found


def _in_turns(scan_once: Scan) -> Scan:
    """The same, with turns of the event loop between values."""

    def scan(text: str, start: int) -> tuple[Any, int]:
        let_the_loop_turn()
        return scan_once(text, start)

    return scan


class _Reader(json.JSONDecoder):
    def __init__(self, parse_string: Callable[..., tuple[str, int]] = scanstring) -> None:
        super().__init__()
        self.parse_string = parse_string
        self.parse_array = _array
        self.parse_object = _object
        self.scan_once = py_make_scanner(self)


_READER = _Reader()
