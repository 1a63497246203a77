"""Memory for the parameters of a model that was built without any."""

import torch
from torch import Tensor, nn

from pando_worker.tensors.huge_pages import HUGE, advise_huge_pages

_CACHE_LINE = 64  # bytes


def allocate(model: nn.Module, device: torch.device) -> None:
    """Give parameters memory: what `to_empty` does, which from "meta" imports a symbolic algebra
    system: a second.

    Parameters stay the same objects, so that what refers to one (`AttentionLayer.sinks`) goes on.
    On a CPU they lie side by side: most are smaller than a huge page, and share some.
    """
    parameters = list(model.parameters())
    if device.type == "cpu":
        memories = _side_by_side(parameters)
    else:
        memories = [torch.empty(each.shape, dtype=each.dtype, device=device) for each in parameters]
    for parameter, memory in zip(parameters, memories, strict=True):
        filled = nn.Parameter(memory, requires_grad=False)
        torch.utils.swap_tensors(parameter, filled)  # type: ignore[no-untyped-call]


def _side_by_side(tensors: list[nn.Parameter]) -> list[Tensor]:
    """Memory of the same shapes and types, each at the start of a cache line."""
    sizes = [-(-tensor.nbytes // _CACHE_LINE) * _CACHE_LINE for tensor in tensors]
    whole = torch.empty(sum(sizes) + HUGE, dtype=torch.uint8)
    whole = whole[-whole.data_ptr() % HUGE :]
    advise_huge_pages(whole)
    parts = torch.split(whole[: sum(sizes)], sizes)
    return [
        part[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for part, tensor in zip(parts, tensors, strict=True)
    ]
