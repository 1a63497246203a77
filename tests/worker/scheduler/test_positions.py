"""Rotary positions of prompts with images: those of transformers, wherever a step begins."""

from functools import cache
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2VLConfig, Qwen2VLModel

from pando_worker.scheduler.batches.positions import positions_of
from pando_worker.scheduler.req import ImageSpan

MERGED = 2


@cache
def model() -> Any:
    """Without weights."""
    with torch.device("meta"):
        return Qwen2VLModel._from_config(
            Qwen2VLConfig(
                text_config={"num_hidden_layers": 0, "hidden_size": 64, "vocab_size": 1},
                vision_config={"depth": 0, "spatial_merge_size": MERGED},
            )
        )


Grid = tuple[int, int, int]


@st.composite
def prompts(draw: st.DrawFn) -> list[int | Grid]:
    """How many tokens of text, then an image's grid, and so on."""
    size = st.integers(1, 7)
    grids = draw(st.lists(st.tuples(st.just(1), size, size), max_size=4))
    parts: list[int | Grid] = [draw(st.integers(0, 5))]
    for grid in grids:
        parts += [grid, draw(st.integers(1, 5))]
    return parts


@given(prompts(), st.data())
def test_positions_are_those_of_transformers(parts: list[int | Grid], data: st.DataObject) -> None:
    images, kinds = [], []
    for part in parts:
        if isinstance(part, int):
            kinds += [0] * part
            continue
        length = int(np.prod(part))
        images.append(ImageSpan(b"", len(kinds), length, 7, {}, part))
        kinds += [1] * length
    grids = [
        (frames, MERGED * rows, MERGED * columns)
        for frames, rows, columns in (image.grid for image in images if image.grid)
    ]
    if not kinds:
        return
    expected, delta = model().get_rope_index(
        torch.zeros(1, len(kinds), dtype=torch.int64),
        torch.tensor([kinds]),
        image_grid_thw=torch.tensor(grids) if grids else None,
    )
    start = data.draw(st.integers(0, len(kinds) - 1))
    end = data.draw(st.integers(start + 1, len(kinds)))
    found = positions_of(images, start, end)
    np.testing.assert_array_equal(found, expected[:, 0, start:end].numpy())
    after = positions_of(images, len(kinds), len(kinds) + 3)
    np.testing.assert_array_equal(after, [np.arange(len(kinds), len(kinds) + 3) + int(delta)] * 3)
