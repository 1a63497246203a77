"""Rotary positions of a request with images.

By multimodal rotary positions (Qwen2-VL, arXiv:2409.12191, section 2.1) a text token has one
position, and an image's tokens have three: of time, height and width, counted from the position
that text would have there. Text goes on behind the image's larger side. The frames of a video have
the same positions of height and width, and text goes on as behind the last of them. So a request's
images alone decide all its positions, wherever a step begins.
"""

from collections.abc import Sequence

import numpy as np

from pando_worker.batch import Int64
from pando_worker.scheduler.req import ImageSpan


def positions_of(images: Sequence[ImageSpan], start: int, end: int) -> Int64:
    """Of a request's tokens from `start` to before `end`: [3, end - start], for time, height and
    width. All three are the same for text, and for images without a grid.

    Args:
        images: of the request, in the order of its prompt
    """
    positions = np.tile(np.arange(start, end), (3, 1))
    shift = 0
    for image in images:
        first, last = max(image.start, start), min(image.end, end)
        if image.grid and first < last:
            inside = np.unravel_index(np.arange(first, last) - image.start, image.grid)
            positions[:, first - start : last - start] = image.start + shift + np.stack(inside)
            positions[0, first - start : last - start] += image.time
        positions[:, max(0, image.end - start) :] += image.shift
        shift += image.shift
    return positions
