"""Queries in e4m3, which FlashAttention 3 needs beside keys and values in e4m3.

Its kernel takes one scale for each head. A call's scales follow from its largest queries, on the
device: the host does not wait, nothing is calibrated, and no finite number is clamped.
"""

from collections.abc import Callable

import torch
from torch import Tensor

QueryQuantizer = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Queries, [num_tokens, heads, head_dim], in half precision, as contiguous e4m3 and float32 scales,
[heads], by which these are multiplied: the largest finite number of a head becomes e4m3's largest.
Numbers that are not finite do not count, so that they harm their own token only."""


def quantized_queries(q: Tensor) -> tuple[Tensor, Tensor]:
    """A `QueryQuantizer` by torch's operators."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    numbers = q.float()
    most = torch.where(numbers.isfinite(), numbers.abs(), 0.0).amax((0, 2))
    scales = torch.where(most > 0, most / largest, 1.0)
    values = (numbers / scales[:, None]).clamp(-largest, largest)
    return values.to(torch.float8_e4m3fn), scales
