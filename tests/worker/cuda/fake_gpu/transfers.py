"""New tensors, and copies between the host and the device."""

from typing import Any

import torch
from torch import Tensor

from tests.worker.cuda.fake_gpu.device import FakeGpu
from tests.worker.cuda.fake_gpu.memory import Block
from tests.worker.cuda.fake_gpu.tensors import (
    DeviceTensor,
    PinnedTensor,
    block_of,
    device_tensor,
    mapped,
    raw,
    spoil,
    used,
)

FACTORIES = {
    *("empty", "empty_like", "new_empty", "empty_strided"),
    *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones"),
    *("full", "full_like", "new_full", "arange"),
    *("tensor", "as_tensor", "new_tensor", "scalar_tensor"),
}
_UNFILLED = {"empty", "empty_like", "new_empty", "empty_strided"}
_FROM_HOST = {"tensor", "as_tensor", "new_tensor", "scalar_tensor"}


def make(
    func: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    target: torch.device | None,
    on_device: list[DeviceTensor],
) -> Any:
    """A new tensor, on the device or pinned."""
    gpu = FakeGpu.of_thread()
    if target is None and on_device:
        target = torch.device("cuda", gpu.index)
    is_pinned = kwargs.pop("pin_memory", False)
    if target is not None and target.type == "meta":
        return func(*args, **kwargs)
    made = func(*mapped(args, raw), **(kwargs | {"device": "cpu"}))
    if target is None or target.type == "cpu":
        return pinned(made) if is_pinned else made
    if name in _FROM_HOST:
        gpu.wait(gpu.stream.seen, f"torch.{name} copies from memory that is not pinned")
    result = device_tensor(made, gpu.allocate(name, made.nbytes))
    if name in _UNFILLED:
        spoil(made)
        return result
    value = made.clone() if gpu.captures else made
    gpu.launch(name, lambda: made.copy_(value), used([result], writes=True))
    return result


def pinned(values: Tensor) -> PinnedTensor:
    FakeGpu.of_thread().not_captured("memory is pinned")
    tensor = torch.Tensor._make_subclass(PinnedTensor, values)
    tensor.block = Block("pinned memory", values.nbytes, None)
    return tensor


def copied(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """`copy_`, in any direction."""
    gpu = FakeGpu.of_thread()
    host = next((x for x in (target, source) if not isinstance(x, DeviceTensor)), None)
    if not isinstance(target, DeviceTensor) and not isinstance(source, DeviceTensor):
        ranges = [*used([source], writes=False), *used([target], writes=True)]
        for block, first, end, writes in ranges:
            gpu.host_uses("copy_", block, first, end, writes=writes)
        raw(target).copy_(raw(source))
        return target
    is_pinned = host is None or block_of(host) is not None
    if not is_pinned:
        gpu.not_captured("a copy of memory that is not pinned")
    plain_target, plain_source = raw(target), raw(source)
    ranges = [*used([source], writes=False), *used([target], writes=True)]
    gpu.launch("copy_", lambda: plain_target.copy_(plain_source), ranges)
    if host is not None and not (non_blocking and is_pinned):
        memory = "pinned" if is_pinned else "not pinned"
        gpu.wait(gpu.stream.seen, f"a copy of memory that is {memory} blocks")
    return target


def pin_memory(tensor: Tensor, device: Any = None) -> Tensor:
    if isinstance(tensor, PinnedTensor):
        return tensor
    assert not isinstance(tensor, DeviceTensor), "cannot pin memory of the GPU"
    return pinned(tensor.clone())
