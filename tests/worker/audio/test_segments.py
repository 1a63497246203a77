"""Segments and the next window's beginning, beside transformers' own code."""

from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

from pando_worker.audio.segments import cut

FIRST = 50_364  # the token of 0.00 s

TOKENS = st.lists(
    st.one_of(st.integers(0, 100), st.integers(FIRST, FIRST + 1500)), min_size=1, max_size=12
)


@given(TOKENS, st.integers(0, 100_000), st.integers(1, 3000))
@example([FIRST, 5, FIRST + 100], 0, 3000)
@example([FIRST, 5, FIRST + 100, FIRST + 100], 0, 3000)
@example([FIRST, 5, FIRST + 100, FIRST + 100, 6, 7], 1000, 3000)
@example([FIRST, 5, FIRST + 100, FIRST + 100, 6, FIRST + 300], 1000, 500)
@example([FIRST, 5, 6], 1000, 501)
@example([0, FIRST, FIRST], 0, 1)
@example([FIRST + 1, 0, FIRST], 0, 54)
def test_segments_are_those_of_transformers(tokens: list[int], start: int, count: int) -> None:
    segments, offset = WhisperGenerationMixin._retrieve_segment(
        seek_sequence=torch.tensor(tokens),
        seek_outputs=[None],
        time_offset=torch.tensor([start], dtype=torch.float64) * 0.02 / 2,
        timestamp_begin=FIRST,
        seek_num_frames=torch.tensor([count]),
        time_precision=0.02,
        time_precision_features=0.01,
        input_stride=2,
        prev_idx=0,
        idx=0,
        return_token_timestamps=False,
        decoder_input_ids=torch.zeros(1, 3),
    )
    found = cut(tokens, start, count, FIRST)
    assert found.advance == int(offset)
    assert [list(one.tokens) for one in found.segments] == [s["tokens"].tolist() for s in segments]
    times = [(one.start, one.end) for one in found.segments]
    expected = [(float(s["start"]), float(s["end"])) for s in segments]
    is_cut = any(first >= FIRST and second >= FIRST for first, second in pairwise(tokens))
    # Where no time stamp or that of 0 s is the last, a window ends with its sound; theirs rounds
    # that down in float32.
    if not is_cut and [t for t in tokens if t >= FIRST][-1:] in ([], [FIRST]):
        assert times[0] == (start * 0.02 / 2, start * 0.02 / 2 + count // 2 * 0.02)
        assert times[0] == pytest.approx(expected[0], abs=0.021)
    else:
        assert times == expected
    assert [3 + one.first for one in found.segments] == [s["idxs"][0] for s in segments]
