"""`data:` URLs: one text for every spelling of the same bytes, and only for these."""

import base64
import random
import tracemalloc
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.images.data_url import base64_of, canonical_base64, decoded

BYTES = st.binary(max_size=40)


def spelled(data: bytes, rng: random.Random) -> str:
    """A `data:` URL of these bytes, in a spelling that clients use."""
    encode = rng.choice([base64.b64encode, base64.urlsafe_b64encode])
    text = encode(data).decode()
    if rng.random() < 0.5:
        text = text.rstrip("=")
    if rng.random() < 0.3:
        text = quote(text, safe="")
        text = text.replace("%2F", "%2f")
    if rng.random() < 0.3:
        for _ in range(3):
            at = rng.randint(0, len(text)) if "%" not in text else len(text)
            text = text[:at] + rng.choice(["\n", " ", "\r\n", "\t"]) + text[at:]
    head = rng.choice(["data:image/png;base64", "DATA:IMAGE/PNG;BASE64", "data:;base64"])
    return f"{head},{text}"


@given(BYTES, BYTES, st.randoms(use_true_random=False))
def test_urls_have_equal_text_exactly_if_their_bytes_are_equal(
    first: bytes, second: bytes, rng: random.Random
) -> None:
    mine, again, other = (spelled(data, rng) for data in (first, first, second))
    assert base64_of(mine) == base64_of(again)
    assert (base64_of(mine) == base64_of(other)) == (first == second)


@pytest.mark.parametrize("escapes", ["%", "%41", "%2B", "%2f"])
def test_a_text_of_escapes_takes_little_more_memory_than_its_size(escapes: str) -> None:
    text = escapes * (2**22 // len(escapes))
    tracemalloc.start()
    try:
        canonical_base64(text)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * len(text)


@given(BYTES, st.integers(0, 50), st.integers(0, 50))
def test_any_part_of_the_bytes_can_be_read(data: bytes, start: int, end: int) -> None:
    text = base64_of(spelled(data, random.Random(start)))
    assert text is not None
    assert decoded(text, start, max(start, end)) == data[start : max(start, end)]
    assert decoded(text) == data


def test_a_last_letter_with_bits_that_stand_for_nothing_is_the_same_letter() -> None:
    assert canonical_base64("QQ==") == canonical_base64("QR==") == canonical_base64("QR") == b"QQ"


@pytest.mark.parametrize(
    "url", ["https://a/b.png", "data:image/png,raw", "data:image/png", "", "x"]
)
def test_other_urls_have_no_base64(url: str) -> None:
    assert base64_of(url) is None


@pytest.mark.parametrize("text", ["Q", "QUJD*", "QU=JD", "é"])
def test_what_is_not_base64_is_not_decoded(text: str) -> None:
    with pytest.raises(ValueError):
        decoded(canonical_base64(text))
