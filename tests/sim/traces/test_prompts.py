"""Generated prompts share tokens and keys exactly as far as their trace specifies."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_sim.traces.prompts import (
    BlockPrompt,
    KeyedPrompt,
    TextPrompt,
    TracePrompt,
    UniquePrompt,
    mix,
    mix_one,
)
from tests.sim.traces.files import equal_start, packed

BLOCK = 64  # tokens, for speed: one chunk
ids = st.lists(st.integers(0, 3), min_size=1, max_size=6)


def blocks(names: Sequence[int], last: int = BLOCK) -> BlockPrompt:
    """Like in a trace, a name stands for a block and everything before it; the last has `last`
    tokens."""
    paths = [hash_of(names[: end + 1]) for end in range(len(names))]
    return BlockPrompt(np.array(paths, dtype=np.uint64), (len(names) - 1) * BLOCK + last, BLOCK)


def hash_of(names: Sequence[int]) -> int:
    return int("1" + "".join(map(str, names)))


def keyed(names: Sequence[int], rest: int, ratio: float, number: int) -> KeyedPrompt:
    paths = [hash_of(names[: end + 1]) for end in range(len(names))]
    size = len(names) * CHUNK_BYTES + rest
    return KeyedPrompt(np.array(paths, dtype=np.uint64), size, ratio, number)


def is_sound(prompt: TracePrompt) -> bool:
    tokens = prompt.tokens()
    assert tokens.dtype == np.int32
    assert len(tokens) == prompt.num_tokens
    assert tokens.min() >= 0
    return len(prompt.keys()) == prompt.num_bytes // CHUNK_BYTES * 8


@given(ids, ids, st.integers(1, BLOCK), st.integers(1, BLOCK))
def test_blocks_share_what_their_ids_share(
    one: list[int], other: list[int], rest_of_one: int, rest_of_other: int
) -> None:
    left, right = blocks(one, rest_of_one), blocks(other, rest_of_other)
    assert is_sound(left)
    shared = min(equal_start(one, other) * BLOCK, left.num_tokens, right.num_tokens)
    assert equal_start(left.tokens(), right.tokens()) == shared
    assert equal_start(packed(left.keys()), packed(right.keys())) == shared // BLOCK


@given(ids, ids, st.integers(0, 255), st.integers(0, 255), st.floats(2.0, 6.0))
def test_chunks_share_the_tokens_that_end_in_them(
    one: list[int], other: list[int], rest_of_one: int, rest_of_other: int, ratio: float
) -> None:
    left, right = keyed(one, rest_of_one, ratio, 1), keyed(other, rest_of_other, ratio, 2)
    assert is_sound(left)
    shared = equal_start(one, other)
    assert equal_start(packed(left.keys()), packed(right.keys())) == shared
    whole = int(shared * CHUNK_BYTES / ratio + 1e-6)
    assert abs(equal_start(left.tokens(), right.tokens()) - whole) <= 1
    assert left.num_tokens == int(left.num_bytes / ratio)


@given(st.text(), st.text(), st.text())
def test_texts_share_what_their_bytes_share(start: str, one: str, other: str) -> None:
    left, right = (start + one).encode(), (start + other).encode()
    tokens = TextPrompt(left).tokens()
    assert len(tokens) == TextPrompt(left).num_tokens == -(-len(left) // 4)
    shared = equal_start(tokens, TextPrompt(right).tokens())
    if left == right:
        assert shared == len(tokens)
    else:
        assert shared >= equal_start(left, right) // 4


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_numbers_are_mixed_alike_one_by_one_and_together(numbers: list[int]) -> None:
    together = mix(np.array(numbers, dtype=np.uint64)).tolist()
    assert together == [int(mix_one(number)) for number in numbers]
    assert len(set(together)) == len(set(numbers))


def test_prompts_without_any_name_share_nothing() -> None:
    prompts = [UniquePrompt(number, 1000) for number in range(50)]
    assert all(map(is_sound, prompts))
    assert len({int(prompt.tokens()[0]) for prompt in prompts}) == 50
    assert len({prompt.keys()[:8] for prompt in prompts}) == 50


@given(ids, ids, st.integers(0, 6), st.integers(1, 5))
def test_renewed_prompts_keep_their_start_and_share_with_each_other_as_before(
    one: list[int], other: list[int], kept: int, again: int
) -> None:
    pairs: list[tuple[TracePrompt, TracePrompt]] = [
        (blocks(one), blocks(other)),
        (keyed(one, 100, 4.0, 1), keyed(other, 100, 4.0, 2)),
        (TextPrompt(text(one)), TextPrompt(text(other))),
    ]
    for left, right in pairs:
        new_left, new_right = left.renewed(kept, again), right.renewed(kept, again)
        assert is_sound(new_left)
        assert new_left.num_bytes == left.num_bytes
        shared = equal_start(packed(left.keys()), packed(right.keys()))
        assert equal_start(packed(new_left.keys()), packed(new_right.keys())) == shared
        with_old = equal_start(packed(left.keys()), packed(new_left.keys()))
        assert with_old == min(kept, len(left.path()))
        assert equal_start(left.tokens(), new_left.tokens()) == with_old * BLOCK
        third = left.renewed(kept, again + 1)
        assert equal_start(packed(third.keys()), packed(new_left.keys())) == with_old


def text(names: Sequence[int]) -> bytes:
    return b"".join(bytes([65 + name]) * CHUNK_BYTES for name in names)
