"""JSON of many values is read in pieces, as in one."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from pando_worker.server.front import json_pieces
from pando_worker.server.front.json_bodies import read_json
from pando_worker.server.front.json_pieces import MANY, read_in_pieces

NUMBERS = st.lists(st.integers() | st.floats(allow_nan=False), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5) | NUMBERS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
WRONG = st.sampled_from(list(',[]{}":-+.eE019 \\atfn'))


def outcome(read: Callable[[bytes], Any], data: bytes) -> tuple[str, object]:
    """The value or the error, each as a text: NaN is not itself."""
    try:
        return "value", repr(read(data))
    except (ValueError, RecursionError) as error:
        return type(error).__name__, ""


@given(VALUES, st.sampled_from([None, 1]))
def test_values_are_those_of_the_standard_library(value: object, indent: int | None) -> None:
    assert read_in_pieces(json.dumps(value, indent=indent).encode()) == value


@given(VALUES, st.lists(st.tuples(st.integers(0, 200), WRONG, st.booleans()), min_size=1))
def test_what_is_no_json_is_refused(value: object, changes: list[tuple[int, str, bool]]) -> None:
    text = json.dumps(value)
    for at, letter, replaces in changes:
        text = text[:at] + letter + text[at + replaces :]
    data = text.encode()
    assert outcome(read_in_pieces, data) == outcome(json.loads, data)


@pytest.mark.parametrize(
    "text",
    ["[,1]", "[1,]", "[1,,2]", "[1 2]", "[1, ]", "[ ,]", "[1,2", "[-]", "[01]", "[1.]", "[+1]"],
)
def test_numbers_that_are_wrong_get_the_same_error(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as wanted:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as got:
        read_in_pieces(text.encode())
    assert got.value.msg == wanted.value.msg


@pytest.mark.parametrize("data", [b'["\xff"]', '["\u00e4"]'.encode("utf-16"), b'"\\ud800"', b""])
def test_encodings_are_those_of_the_standard_library(data: bytes) -> None:
    assert outcome(read_in_pieces, data) == outcome(json.loads, data)


def test_compiled_code_gets_some_thousand_characters_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []

    def counted(text: str) -> Any:
        taken.append(len(text))
        return from_json(text)

    monkeypatch.setattr(json_pieces, "from_json", counted)
    for value in (list(range(40_000)), [[i] * 100 for i in range(400)], {"a": [0.5] * 20_000}):
        assert read_json(json.dumps(value).encode()) == value
    assert max(taken) <= 8194 and sum(taken) > 300_000
    taken.clear()
    few = list(range(MANY))
    assert read_json(json.dumps(few).encode()) == few and not taken
