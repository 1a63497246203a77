"""Where long files are cut."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pando_worker.audio.pauses import loudness_of, pieces_of

WINDOW = 300


@given(
    st.integers(1, 2000).flatmap(
        lambda size: arrays(np.float32, size, elements=st.floats(-4, 4, width=32))
    )
)
def test_pieces_cover_the_file_and_fit_the_window(loudness: np.ndarray) -> None:
    pieces = pieces_of(loudness, WINDOW)
    assert pieces[0].start == 0
    assert pieces[-1].end == len(loudness)
    assert all(one.end == other.start for one, other in pairwise(pieces))
    assert all(0 < piece.end - piece.start <= WINDOW for piece in pieces)
    assert all(piece.end - piece.start > WINDOW // 2 for piece in pieces[:-1])


def test_cuts_are_in_pauses() -> None:
    """Not in the gaps of 0.05 s that are within words."""
    features = np.ones((80, 3000), np.float32)
    pauses = [(230, 290), (480, 540), (725, 780)]
    for gap in range(20, 3000, 50):
        features[:, gap : gap + 5] = -1
    for start, end in pauses:
        features[:, start:end] = -0.9
    cuts = [piece.end for piece in pieces_of(loudness_of(features), WINDOW)][:3]
    assert all(start < cut < end for cut, (start, end) in zip(cuts, pauses, strict=True))
