"""Images in canonical bytes take the room of their tokens."""

from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.images.in_prefix import (
    MOST_TOKENS,
    ROOM,
    TOKEN_BYTES,
    PrefixImage,
    counted,
    with_room,
)
from pando_fleet.images.rule import MAX_TOKENS, ImageRule
from pando_fleet.images.size import Size

SIZES = st.one_of(st.none(), st.builds(Size, st.integers(1, 5000), st.integers(1, 5000)))


@given(st.binary(max_size=50), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9))))
def test_each_image_is_followed_by_the_bytes_of_its_tokens(
    data: bytes, found: list[tuple[int, int]]
) -> None:
    places = sorted((min(end, len(data)), tokens) for end, tokens in found)
    images = [PrefixImage(end, None, tokens=tokens) for end, tokens in places]
    expected, shift = bytearray(data), 0
    for end, tokens in places:
        room = ROOM * (TOKEN_BYTES * tokens)
        expected[end + shift : end + shift] = room
        shift += len(room)
    assert with_room(data, images) == expected


def test_tokens_of_all_images_together_are_bounded() -> None:
    rule = ImageRule(kind="fixed", tokens=1 << 20)
    images = counted([PrefixImage(0, None)] * 20, rule)
    assert sum(image.tokens for image in images) == MOST_TOKENS
    assert images[0].tokens == MAX_TOKENS


@given(
    st.sampled_from(["fixed", "grid", "rows", "tiles", "split", "canvas", "of a newer release"]),
    st.integers(0, 100),
    SIZES,
)
def test_a_rule_that_lacks_fields_or_is_unknown_gives_no_tokens(
    kind: str, tokens: int, size: Size | None
) -> None:
    bare = ImageRule(kind=kind).tokens_of(size)
    assert bare == 0
    assert 0 <= ImageRule(kind=kind, tokens=tokens).tokens_of(size) <= MAX_TOKENS
