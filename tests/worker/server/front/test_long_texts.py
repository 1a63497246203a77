"""JSON with long texts is read in pieces, as in one. Texts and pieces are short here."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_worker.server.front import long_texts
from pando_worker.server.front.json_bodies import read_json
from pando_worker.server.front.json_pieces import read_long

LONG = 40  # bytes; longer than any name below
KEYS = st.text(max_size=3)
CHARACTERS = st.sampled_from([*'aé€😀"\\\n\t ,:{}[]\u2028', "\ud83d", "\ude00", "\0", "u", "d83d"])
TEXTS = st.lists(CHARACTERS, max_size=80).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
BLANKS = st.sampled_from([None, 1, 30])
WRONG = st.sampled_from([*map(bytes, zip(b',[]{}":-+.eE019 \\atfnu\n\0')), b"\xe9", b"\\ud83d"])


@pytest.fixture(autouse=True, scope="module")
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_texts, "_LONG_TEXT", LONG)
        patch.setattr(long_texts, "_PIECE", 16)
        yield


def outcome(read: Callable[[bytes], Any], data: bytes) -> tuple[str, object]:
    try:
        return "value", repr(read(data))
    except json.JSONDecodeError as error:
        return error.msg, error.pos
    except (ValueError, RecursionError) as error:
        return type(error).__name__, ""


@given(VALUES, BLANKS, st.booleans())
def test_values_are_those_of_the_standard_library(
    value: object, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    data = text.encode("utf-8", "surrogatepass")
    assert outcome(read_long, data) == outcome(json.loads, data)


@given(VALUES, BLANKS, st.lists(st.tuples(st.integers(0, 300), WRONG, st.booleans()), min_size=1))
def test_what_is_no_json_is_refused_at_its_place(
    value: object, indent: int | None, changes: list[tuple[int, bytes, bool]]
) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for place, wrong, replaces in changes:
        place = min(place, len(data))
        data = data[:place] + wrong + data[place + replaces :]
    if data[:1] == b"\0" or data[1:2] == b"\0":
        return  # which the standard library takes for UTF-16
    found, expected = outcome(read_long, data), outcome(json.loads, data)
    if found[0] in ("Property name is too long", "Number with too many digits"):
        return
    if found != expected:  # of two errors, another may be found first
        assert "value" not in (found[0], expected[0]), (data, found, expected)


@pytest.mark.parametrize(
    ("data", "message", "position"),
    [
        (b'["%b' % (b"x" * 99), "Unterminated string starting at", 1),
        (b'["%b\\x"]' % (b"x" * 99), "Invalid \\escape", 101),
        (b'["%b", "%b", x]' % (b"x" * 99, "é".encode() * 99), "Expecting value", 207),
        (b'[%b1, "", x]' % (b" " * 99), "Expecting value", 107),
        (b'{"%b" : 1}' % (b"x" * 99), "Property name is too long", 1),
        (b"[%b]" % (b"1" * 99), "Number with too many digits", 16),
        ('["x"]'.encode("utf-16"), "A body of more than 4 MiB must be UTF-8", 0),
    ],
)
def test_errors_have_their_place_in_the_whole(data: bytes, message: str, position: int) -> None:
    with pytest.raises(json.JSONDecodeError) as error:
        read_long(data)
    assert (error.value.msg, error.value.pos) == (message, position)


def test_a_long_body_is_read_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"prompt": "x" * long_texts.LONG_BODY, "image": "€" * 99, "n": [1, 2.5, None]}
    monkeypatch.setattr(long_texts, "_PIECE", 1 << 17)
    data = json.dumps(body, ensure_ascii=False).encode()
    assert read_json(data) == body
    assert long_texts.leave_out(data).json.count("x") == 0
