"""JSON with long texts, each of which is read in pieces, so that compiled code never keeps the
interpreter's lock for long: to copy 16 MiB takes 10 ms.

A long text is left out, and a short name stands in its place while the rest is read.
"""

import re
from dataclasses import dataclass, field
from json import JSONDecodeError, detect_encoding
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed does not have it
from secrets import token_hex

from pydantic_core import from_json

from pando_fleet.http.off_loop import let_the_loop_turn

LONG_BODY = 4 << 20  # bytes, which compiled code reads in some 3 ms

_LONG_TEXT = 1 << 16
_PIECE = 1 << 17  # bytes, in 0.3 ms

# `++` and `*+` never go back, so a mismatch costs no second try. An escape is matched whole.
_IN_TEXT = re.compile(rb'(?:[^"\\]++|\\u.{4}|\\[^u])*+', re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")  # of a character that takes two escapes
_OTHER_HALF = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_COLON = re.compile(rb"[ \t\n\r]{0,64}+:")


@dataclass(slots=True)
class LeftOut:
    """The JSON without its long texts."""

    json: str
    texts: dict[str, str] = field(default_factory=dict)
    longer: list[tuple[int, int]] = field(default_factory=list)
    """Where each of them ends in `json`, and how many characters are left out up to there."""

    def parse_string(self, json: str, start: int, strict: bool = True) -> tuple[str, int]:
        """As the standard library's, which readers call, with the long texts."""
        found, end = scanstring(json, start, strict)
        return self.texts.get(found, found), end

    def moved(self, error: JSONDecodeError) -> JSONDecodeError:
        """An error of `json`, with its position in the whole."""
        left_out = max((more for end, more in self.longer if end <= error.pos), default=0)
        return _wrong(error.msg, error.pos + left_out)


def leave_out(data: bytes) -> LeftOut:
    """Raises ValueError if a long text or a long number is none, or it is not UTF-8."""
    if detect_encoding(data) != "utf-8":
        raise _wrong(f"A body of more than {LONG_BODY >> 20} MiB must be UTF-8", 0)
    nonce = token_hex(16)  # which no text of the client has
    json, at, left_out = "", 0, 0
    texts: dict[str, str] = {}
    longer: list[tuple[int, int]] = []
    while at < len(data):
        let_the_loop_turn()
        # `json +=` appends in place, as nothing else refers to that text.
        quote = data.find(b'"', at, at + _PIECE)
        end = quote if quote >= 0 else min(at + _PIECE, len(data))
        between, at = data[at:end], end
        if len(between) == _PIECE:
            if between.isdigit():
                raise _wrong("Number with too many digits", len(json) + left_out)
            if between.isspace():
                between, left_out = b" ", left_out + _PIECE - 1
                longer.append((len(json) + 1, left_out))
        json += between.decode("utf-8", "surrogatepass")
        if quote < 0:
            continue
        end = _end_in_text(data, quote + 1, quote + 1 + _LONG_TEXT)
        if data[end : end + 1] == b'"':
            json += data[quote : end + 1].decode("utf-8", "surrogatepass")
            at = end + 1
            continue
        name = f"{nonce}{len(texts)}"
        texts[name], length, at = _text(data, quote + 1, len(json) + left_out)
        if _COLON.match(data, at):
            raise _wrong("Property name is too long", len(json) + left_out)
        json += f'"{name}"'
        left_out += length - len(name)
        longer.append((len(json), left_out))
    return LeftOut(json, texts, longer)


def _text(data: bytes, start: int, quote: int) -> tuple[str, int, int]:
    """The text that starts there, its length in the JSON in characters, and the end behind its
    last quote.

    Args:
        quote: the position of its first one, in characters, for errors
    """
    text, length, at = "", 0, start
    while True:
        let_the_loop_turn()
        end = _end_in_text(data, at, at + _PIECE)
        raw = data[at:end].decode("utf-8", "surrogatepass")
        try:
            text += from_json(b'"%b"' % data[at:end])
        except ValueError:  # or what only Python's reader reads: half a surrogate pair
            try:
                text += scanstring(f'{raw}"', 0)[0]
            except JSONDecodeError as error:
                raise _wrong(error.msg, quote + 1 + length + error.pos) from None
        length += len(raw)
        if data[end : end + 1] == b'"':
            return text, length, end + 1
        if end == at:
            raise _wrong("Unterminated string starting at", quote)
        at = end


def _end_in_text(data: bytes, start: int, most: int) -> int:
    """Where a text may be cut: at its last quote, or at most a few bytes after `most`."""
    quote = data.find(b'"', start, most)
    end = quote if quote >= 0 else min(most, len(data))
    if data.find(b"\\", start, end) >= 0 and (found := _IN_TEXT.match(data, start, most)):
        end = found.end()
    if data[end : end + 1] == b'"':
        return end
    while start < end < len(data) and data[end] & 0xC0 == 0x80:  # within a character
        end -= 1
    if _HALF.search(data, max(start, end - 6), end) and (other := _OTHER_HALF.match(data, end)):
        end = other.end()
    return end


def _wrong(what: str, position: int) -> JSONDecodeError:
    error = JSONDecodeError(what, "", 0)  # which would count the lines up to there
    error.pos = position
    return error
