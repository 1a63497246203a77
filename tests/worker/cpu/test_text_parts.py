"""A step's texts in parts that run beside each other."""

from collections.abc import Iterator
from threading import Event

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pando_worker.runner.cpu.text_parts import LEAST_TOKENS, UNEQUAL, TextParts, equal_parts
from tests.examples import examples

PATIENCE = 60


@pytest.fixture(scope="module")
def parts() -> Iterator[TextParts]:
    before = torch.get_num_threads()
    yield TextParts(2)
    torch.set_num_threads(before)


@settings(max_examples=examples(200))
@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 8))
def test_parts_are_all_texts_in_order_and_about_as_long_as_each_other(
    lengths: list[int], most: int
) -> None:
    found = equal_parts(np.array(lengths, dtype=np.int32), most)
    assert [one for part in found for one in lengths[part]] == lengths
    assert len(found) in (1, most)
    if len(found) > 1:
        tokens = [sum(lengths[part]) for part in found]
        assert min(tokens) > 0
        assert max(tokens) <= UNEQUAL * sum(lengths) / most
        assert sum(lengths) >= most * LEAST_TOKENS


def test_texts_that_divide_well_are_divided_and_others_are_not() -> None:
    def divided(*lengths: int) -> list[slice]:
        return equal_parts(np.array(lengths, dtype=np.int32), 2)

    assert divided(*[22] * 32) == [slice(0, 16), slice(16, 32)]
    assert divided(LEAST_TOKENS, LEAST_TOKENS) == [slice(0, 1), slice(1, 2)]
    assert divided(LEAST_TOKENS, LEAST_TOKENS - 1) == [slice(0, 2)]  # too few
    assert divided(500, 100, 100) == [slice(0, 3)]  # no cut is near the middle
    assert divided(700) == [slice(0, 1)]


def test_each_part_has_one_of_torchs_threads_and_the_caller_has_all(parts: TextParts) -> None:
    met = [Event(), Event()]

    def encode(number: int, texts: slice) -> Tensor:
        met[number].set()
        assert met[1 - number].wait(PATIENCE), "parts run one after the other"
        return torch.tensor([texts.start, torch.get_num_threads()])

    for _ in range(3):
        found = parts.run([slice(0, 3), slice(3, 5)], encode)
        assert [one.tolist() for one in found] == [[0, 1], [3, 1]]
        for event in met:
            event.clear()
    assert torch.get_num_threads() == 2


def test_an_error_of_a_part_is_raised_when_all_have_ended(parts: TextParts) -> None:
    failed, ended = Event(), Event()

    def encode(number: int, texts: slice) -> Tensor:
        if number == 0:
            failed.set()
            raise ValueError("a text is odd")
        assert failed.wait(PATIENCE)
        ended.set()
        return torch.zeros(1)

    with pytest.raises(ValueError, match="a text is odd"):
        parts.run([slice(0, 1), slice(1, 2)], encode)
    assert ended.is_set()
