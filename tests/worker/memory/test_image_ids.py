"""Ids of image tokens: each image's own, the same in every process."""

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pando_worker.memory.image_ids import FIRST_ID, image_ids


@given(st.binary(min_size=16, max_size=16), st.integers(1, 600))
def test_ids_are_words_of_the_digest_above_every_vocabulary(digest: bytes, length: int) -> None:
    found = image_ids(digest, length)
    stream = hashlib.shake_128(digest).digest(4 * length)
    words = [int.from_bytes(stream[at : at + 4], "little") for at in range(0, len(stream), 4)]
    assert found.tolist() == [FIRST_ID + word % FIRST_ID for word in words]
    assert found.dtype == np.int32


@given(st.sets(st.binary(min_size=16, max_size=16), min_size=2, max_size=50))
def test_different_images_differ_from_their_first_tokens_on(digests: set[bytes]) -> None:
    assert len({image_ids(digest, 4).tobytes() for digest in digests}) == len(digests)
