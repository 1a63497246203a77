"""The count of a JSON text's values, against a reader that looks at one character after another."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.http.json_values import CONTAINER, JsonValues

TEXTS = st.text(alphabet='\\",[]{}ab\né\ud83d', max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
)


def by_character(text: str) -> int:
    count, in_string, escaped = 0, False, False
    for character in text:
        if in_string:
            ends = character == '"' and not escaped
            escaped = character == "\\" and not escaped
            in_string = not ends
        elif character == '"':
            in_string = True
        elif character == ",":
            count += 1
        elif character in "[{":
            count += CONTAINER
    return count


@given(VALUES, st.lists(st.integers(1, 9), min_size=1), st.booleans())
def test_values_are_counted_however_the_text_is_cut(
    value: Any, sizes: list[int], ascii_only: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    rest, values, turn = text.encode(errors="surrogatepass"), JsonValues(1 << 30), 0
    while rest:
        size = sizes[turn % len(sizes)]
        values.feed(rest[:size])
        rest, turn = rest[size:], turn + 1
    assert values.count == by_character(text)


def test_counting_ends_soon_after_there_are_too_many() -> None:
    values = JsonValues(100)
    for _ in range(1000):
        values.feed(b"1," * 50)
    assert values.too_many
    assert values.count == 150
