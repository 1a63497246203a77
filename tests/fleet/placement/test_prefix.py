"""Chunk keys: two prompts share exactly the keys of their common prefix."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from pando_fleet.placement.prefix import (
    MAX_CHUNKS,
    PrefixError,
    chunk_keys,
    completion_bytes,
    pair_bytes,
    seed,
)


@given(st.text(max_size=8), st.lists(st.integers(0, 2**32 - 1), max_size=8))
def test_text_and_token_ids_never_share_bytes(text: str, ids: list[int]) -> None:
    assert completion_bytes(text) != completion_bytes(ids)
    assert len(completion_bytes(ids)) == 1 + 4 * len(ids)


@given(st.binary(max_size=64), st.integers(0, 2**64 - 1), st.integers(1, 9))
def test_keys_are_a_chain_of_hashes_over_the_full_chunks(
    data: bytes, start: int, chunk_bytes: int
) -> None:
    keys = chunk_keys(data, start, chunk_bytes)
    assert len(keys) == 8 * (len(data) // chunk_bytes)
    previous = start.to_bytes(8, "big")
    for i in range(len(data) // chunk_bytes):
        previous = xxh3_64_digest(previous + data[i * chunk_bytes : (i + 1) * chunk_bytes])
        assert keys[8 * i : 8 * i + 8] == previous


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
def test_two_prompts_share_keys_exactly_as_far_as_they_share_chunks(
    common: bytes, one: bytes, other: bytes
) -> None:
    first, second = common + one, common + other
    shared = 0
    while (
        shared < min(len(first), len(second)) // 4
        and first[: 4 * shared + 4] == second[: 4 * shared + 4]
    ):
        shared += 1
    a, b = chunk_keys(first, 7, 4), chunk_keys(second, 7, 4)
    assert a[: 8 * shared] == b[: 8 * shared]
    assert not set(_split(a[8 * shared :])) & set(_split(b[8 * shared :]))


def test_a_huge_prompt_has_a_bounded_number_of_keys() -> None:
    assert len(chunk_keys(b"x" * (MAX_CHUNKS + 5), 0, 1)) == 8 * MAX_CHUNKS


@given(st.lists(st.tuples(*[st.text(st.sampled_from("ab\xff\x00"), max_size=2)] * 4), max_size=9))
def test_model_adapter_and_salts_each_make_a_name_space(spaces: list[tuple[str, ...]]) -> None:
    assert len({seed(*space) for space in spaces}) == len(set(spaces))


def test_a_query_and_its_documents_share_the_querys_bytes_and_no_more() -> None:
    first, second = pair_bytes("query", "one"), pair_bytes("query", "two")
    assert first.startswith(b"query")
    assert first[:6] == second[:6]
    assert pair_bytes("ab", "c") != pair_bytes("a", "bc")
    assert pair_bytes("q", {"text": "d", "title": "t"}) == pair_bytes(
        "q", {"title": "t", "text": "d"}
    )


@pytest.mark.parametrize("prompt", [None, {"a": 1}, [-1], [2**32], [1.5], ["text"], [[1]]])
def test_a_prompt_that_is_neither_text_nor_token_ids_is_refused(prompt: Any) -> None:
    with pytest.raises(PrefixError, match="prompt must"):
        completion_bytes(prompt)


def _split(keys: bytes) -> list[bytes]:
    return [keys[i : i + 8] for i in range(0, len(keys), 8)]
