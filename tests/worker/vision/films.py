"""Films: a window that moves over a photograph, encoded by PyAV."""

import io
from fractions import Fraction
from functools import cache
from typing import Any

import av
import numpy as np

from tests.worker.vision.photographs import photograph


@cache
def film(
    name: str = "coffee.png",
    *,
    frames: int = 24,
    rate: int = 8,
    size: tuple[int, int] = (64, 48),
    form: str = "mp4",
    codec: str = "libx264",
) -> bytes:
    """A file.

    Args:
        name: of a photograph
        size: width and height
        form: of the container, by FFmpeg's name
    """
    whole = np.asarray(photograph(name))
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=form) as container:
        stream: Any = container.add_stream(codec, rate=Fraction(rate))
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for number in range(frames):
            down = 3 * number % (whole.shape[0] - size[1] + 1)
            right = 5 * number % (whole.shape[1] - size[0] + 1)
            part = whole[down : down + size[1], right : right + size[0]]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(part.copy(), format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()
