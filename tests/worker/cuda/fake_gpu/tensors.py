"""Tensors that say they are on a GPU, and pinned ones: tensors of the CPU under other names."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.worker.cuda.fake_gpu.device import FakeGpu, Range
from tests.worker.cuda.fake_gpu.memory import Block, bytes_of

plain = torch._C.DisableTorchFunction
"""Within, torch's functions know nothing of a GPU."""

_GARBAGE = 0x6B6B6B6B  # in memory that nothing wrote


@classmethod  # type: ignore[misc]
def _called(
    cls: type, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """In threads without `on_gpu`, which may ask for a shape or a dtype."""
    from tests.worker.cuda.fake_gpu.functions import called  # it imports this file

    return called(func, args, kwargs or {})


class DeviceTensor(Tensor):
    """
    Attributes:
        block: its memory
    """

    block: Block

    __torch_function__ = _called


class PinnedTensor(Tensor):
    """Host memory that torch has pinned."""

    block: Block

    __torch_function__ = _called


def device_tensor(raw: Tensor, block: Block) -> DeviceTensor:
    with plain():
        tensor = torch.Tensor._make_subclass(DeviceTensor, raw)
    tensor.block = block
    return tensor


def raw(tensor: Tensor) -> Tensor:
    """The same memory as an ordinary tensor, for what runs inside of launches."""
    if not isinstance(tensor, DeviceTensor | PinnedTensor):
        return tensor
    with plain():
        return torch.Tensor._make_subclass(Tensor, tensor)


def tensors_in(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, tuple | list):
        for each in given:
            yield from tensors_in(each)
    elif isinstance(given, dict):
        for each in given.values():
            yield from tensors_in(each)


def block_of(tensor: Tensor) -> Block | None:
    """None for ordinary host memory."""
    if isinstance(tensor, DeviceTensor | PinnedTensor):
        return tensor.block
    if not (registered := FakeGpu.of_thread().registered):
        return None
    with plain():
        return registered.get(tensor.untyped_storage().data_ptr())


def used(tensors: Sequence[Tensor], *, writes: bool) -> list[Range]:
    ranges = []
    for tensor in tensors:
        if (block := block_of(tensor)) is not None:
            with plain():
                first, end = bytes_of(tensor)
            if first < end:
                ranges.append((block, first, end, writes))
    return ranges


def mapped(given: Any, change: Callable[[Tensor], Any]) -> Any:
    if isinstance(given, Tensor):
        return change(given)
    if isinstance(given, tuple) and hasattr(given, "_fields"):  # of torch.return_types or our own
        return type(given)(*(mapped(each, change) for each in given))
    if isinstance(given, tuple | list):
        return type(given)(mapped(each, change) for each in given)
    if isinstance(given, dict):
        return {name: mapped(each, change) for name, each in given.items()}
    return given


def address(tensor: Tensor) -> int:
    number: int = tensor.untyped_storage()._cdata
    return number


def spoil(values: Tensor) -> None:
    if values.is_floating_point():
        values.fill_(torch.nan)
    elif values.dtype not in (torch.bool, torch.uint8):  # large, and not read as numbers
        values.fill_(min(_GARBAGE, torch.iinfo(values.dtype).max))
