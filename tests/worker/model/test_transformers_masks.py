"""How the worker reads transformers' mask functions, of which it supports two kinds."""

import pytest
import torch
from transformers import masking_utils as library

from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.transformers_backend.masks import MaskFunction, window_of

CONTEXT = 10_000
CHUNKS = library.chunked_causal_mask_function(512, torch.zeros(1, dtype=torch.int64))
EVERYTHING = library.bidirectional_mask_function
PREFIX = library.or_masks(library.causal_mask_function, lambda b, h, query, key: key < 100)


def window(mask: MaskFunction, *windows: int | None, lengths: tuple[int, ...] = ()) -> int | None:
    return window_of(mask, windows, lengths, CONTEXT)


def test_a_causal_mask_has_no_window() -> None:
    assert window(library.causal_mask_function, None) is None
    assert window(library.causal_mask_function, 4096, None, lengths=(4096,)) is None


@pytest.mark.parametrize("size", [1, 2, 7, 512, 4096, 9999])
def test_a_sliding_window_is_distinguished_from_its_neighbours(size: int) -> None:
    mask = library.sliding_window_causal_mask_function(size)
    assert window(mask, size - 1, size + 1, None, size, lengths=(size,)) == size


def test_a_window_beyond_the_context_is_none() -> None:
    mask = library.sliding_window_causal_mask_function(CONTEXT + 5)
    assert window(mask, None, lengths=(CONTEXT + 5,)) is None


@pytest.mark.parametrize("mask", [EVERYTHING, PREFIX], ids=["everything", "prefix"])
def test_tokens_that_see_later_ones_are_refused(mask: MaskFunction) -> None:
    with pytest.raises(UnsupportedModel, match="not causal"):
        window(mask, None, lengths=(100,))


def test_chunks_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="neither all earlier ones nor a sliding window"):
        window(CHUNKS, None, 512, lengths=(512,))


def test_a_mask_of_more_than_positions_is_refused() -> None:
    padding = library.padding_mask_function(torch.ones(1, CONTEXT, device="meta"))
    with pytest.raises(UnsupportedModel, match="more than positions"):
        window(library.and_masks(library.causal_mask_function, padding), None)
