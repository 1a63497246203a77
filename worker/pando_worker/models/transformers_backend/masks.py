"""Which tokens a model's mask allows: all earlier ones, a window, or something we cannot serve.

transformers makes a mask from a function of (batch, head, query position, key position). The
function can be evaluated at any position, even one that a short run would not reach. Here it is
evaluated at the positions where masks can begin and end.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.models.errors import UnsupportedModel

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def window_of(
    mask: MaskFunction, windows: Sequence[int | None], lengths: Iterable[int], context_length: int
) -> int | None:
    """The one of `windows` that the mask equals; None stands for all earlier tokens.

    Args:
        lengths: lengths that may occur in the mask: the integers of the model's config

    Raises:
        UnsupportedModel: the mask equals none of them.
    """
    points = torch.from_numpy(_points(lengths, context_length))
    query, key = points[:, None], points[None, :]
    zero = torch.zeros((), dtype=torch.int64)
    try:
        seen = mask(zero, zero, query, key).broadcast_to(len(points), len(points))
    except RuntimeError as error:  # it uses the probe's tensors, which have no values
        raise UnsupportedModel("its mask depends on more than positions") from error
    for window in windows:
        allowed = key <= query
        if window is not None:
            allowed = allowed & (key > query - window)
        if torch.equal(seen, allowed):
            return window
    if (seen & (key > query)).any():
        raise UnsupportedModel("its attention is not causal: tokens see later ones")
    raise UnsupportedModel("its tokens see neither all earlier ones nor a sliding window of them")


def _points(lengths: Iterable[int], context_length: int) -> NDArray[np.int64]:
    """Positions near multiples of each length, and each length after some others; ascending."""
    known = np.array([n for n in {*lengths} if 1 < n < context_length], dtype=np.int64)
    some = np.random.default_rng(0).integers(0, context_length, 16)
    borders = np.concatenate(
        [np.multiply.outer(known, [1, 2, 3]).ravel(), np.add.outer(known, some).ravel()]
    )
    near = np.add.outer(borders, [-1, 0, 1]).ravel()
    points = np.unique(np.concatenate([np.arange(24), some, near]))
    return points[(points >= 0) & (points < context_length)]
