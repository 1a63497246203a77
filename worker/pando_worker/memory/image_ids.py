"""Token ids that stand for images, by which the radix cache tells images apart.

As in SGLang, an image's tokens get ids made from its digest, so equal images share cached prefixes
and different ones do not. SGLang repeats one id; here each token has an id of its own, so two
images that share k tokens by chance need k equal words of 30 bits. The ids are cut from a
cryptographic hash and depend on nothing else, such as a process's hash seed.
"""

from hashlib import shake_128

import numpy as np
from numpy.typing import NDArray

FIRST_ID = 1 << 30
"""No vocabulary is so large: no text has an id from here on."""


def image_ids(digest: bytes, length: int) -> NDArray[np.int32]:
    """Ids of an image's tokens, [length], each from `FIRST_ID` to below 2^31."""
    words = np.frombuffer(shake_128(digest).digest(4 * length), dtype="<u4")
    return (words % FIRST_ID + FIRST_ID).astype(np.int32)
