"""What each of torch's functions does to tensors of a GPU.

Every function that gets one, or makes one, is a launch on the current stream: it uses the bytes of
its arguments and of its result. A view is none. Functions that CUDA would let wait for the device
do that here, and those that it refuses are refused.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tests.worker.cuda.fake_gpu.device import FakeGpu
from tests.worker.cuda.fake_gpu.memory import CudaError
from tests.worker.cuda.fake_gpu.tensors import (
    DeviceTensor,
    PinnedTensor,
    address,
    block_of,
    device_tensor,
    mapped,
    plain,
    raw,
    spoil,
    tensors_in,
    used,
)
from tests.worker.cuda.fake_gpu.transfers import FACTORIES, copied, make, pin_memory

# The host reads the result.
_READS = {
    *("item", "tolist", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__"),
    *("__contains__", "equal", "allclose", "is_nonzero", "__complex__"),
}
# The size of the result depends on values.
_BY_VALUES = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"}
_IN_PLACE = {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "and", "or", "xor")}
_NO_LAUNCH = {"detach_", "share_memory_", "rename_"}
# They need no memory.
_FREE = {
    *("size", "dim", "stride", "numel", "__len__", "element_size", "storage_offset", "data_ptr"),
    *("is_contiguous", "is_floating_point", "nelement", "requires_grad_"),
}
_GETTERS: Any = torch.Tensor  # of which each has a `__get__`
_VIEWS = {_GETTERS.T.__get__, _GETTERS.mT.__get__, _GETTERS.data.__get__}


class OnGpu(TorchFunctionMode):
    """Makes tensors with device "cuda" `DeviceTensor`s, in this thread."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return called(func, args, kwargs or {})


def called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One of torch's functions."""
    with plain():
        if (special := _SPECIAL.get(func)) is not None:
            return special(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _FREE or (name == "__get__" and func not in _VIEWS):
            return func(*args, **kwargs)
        given = list(tensors_in((args, kwargs)))
        on_device = [x for x in given if isinstance(x, DeviceTensor)]
        device = kwargs.get("device")
        target = None if device is None else torch.device(device)
        if name in FACTORIES and (on_device or target is not None or kwargs.get("pin_memory")):
            return make(func, name, args, kwargs, target, on_device)
        if on_device:
            return _launched(func, name, args, kwargs, given, on_device[0])
        return _on_host(func, name, args, kwargs, given)


def _written(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """What a function changes."""
    if (out := kwargs.get("out")) is not None:
        return list(tensors_in(out))
    in_place = name.endswith("_") and not name.endswith("__") and name not in _NO_LAUNCH
    if in_place or name in _IN_PLACE or name == "__setitem__":
        return [args[0]]
    return []


def _on_host(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor]
) -> Any:
    """A function of host memory, some of which may be pinned."""
    pinned = [x for x in given if block_of(x) is not None]
    if not pinned:
        return func(*args, **kwargs)
    result = func(*mapped(args, raw), **mapped(kwargs, raw))
    changed = _written(name, args, kwargs)
    blocks = {address(x): x for x in pinned}

    def kept(made: Tensor) -> Tensor:
        whole = blocks.get(address(made))
        if isinstance(whole, PinnedTensor):
            made = torch.Tensor._make_subclass(PinnedTensor, made)
            made.block = whole.block
        return made

    found = list(tensors_in(result))
    if name in _READS or changed or any(address(x) not in blocks for x in found):
        gpu = FakeGpu.of_thread()
        for tensor in pinned:
            writes = any(tensor is x for x in changed)
            for block, first, end, _ in used([tensor], writes=writes):
                gpu.host_uses(name, block, first, end, writes=writes)
    return args[0] if changed and "out" not in kwargs else mapped(result, kept)


def _launched(
    func: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: list[Tensor],
    first: DeviceTensor,
) -> Any:
    gpu = FakeGpu.of_thread()
    by_mask = name in ("__getitem__", "__setitem__") and any(
        x.dtype == torch.bool and x.dim() for x in tensors_in(args[1])
    )
    if name in _READS or name in _BY_VALUES or by_mask:
        gpu.wait(gpu.stream.seen, f"{name} needs values of the device")
        for tensor in given:
            for block, start, end, _ in used([tensor], writes=False):
                gpu.host_uses(name, block, start, end, writes=False)
        if name in ("numpy", "__array__"):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        if name in _READS:
            return func(*mapped(args, raw), **mapped(kwargs, raw))
    if name == "scaled_dot_product_attention":
        _check_mask(kwargs.get("attn_mask"))
    if name == "__setitem__":
        value = args[2]
        if isinstance(value, Tensor) and not isinstance(value, DeviceTensor):
            view = called(torch.Tensor.__getitem__, args[:2], {})
            assert address(view) == address(first), "values of the host at places of the device"
            return copied(view, value.expand(view.shape))
    for tensor in given:
        if not isinstance(tensor, DeviceTensor) and tensor.dim() and tensor.device.type != "meta":
            raise CudaError(f"{name}: tensors on the GPU and on the host")
    changed = _written(name, args, kwargs)
    plain_args, plain_kwargs = mapped(args, raw), mapped(kwargs, raw)
    if "device" in plain_kwargs:
        plain_kwargs["device"] = "cpu"
    if gpu.captures:
        return _recorded(func, name, args, kwargs, plain_args, plain_kwargs, given, changed)
    if changed:
        read = used([x for x in given if not any(x is y for y in changed)], writes=False)
        gpu.launch(
            name,
            lambda: func(*plain_args, **plain_kwargs),
            [*used(changed, writes=True), *read],
        )
        return kwargs.get("out", args[0])
    result = func(*plain_args, **plain_kwargs)
    return _finished(gpu, name, result, given, lambda: None)


def _check_mask(mask: Tensor | None) -> None:
    """Torch's kernel reads 16 bytes at once. Torch copies a mask before if its rows are not
    aligned, in numbers, but does not look where it begins."""
    if mask is None or any(stride % 16 for stride in mask.stride()[:-1]):
        return
    if raw(mask).data_ptr() % 16:
        raise CudaError("misaligned address")


def _finished(
    gpu: FakeGpu, name: str, result: Any, given: list[Tensor], run: Callable[[], object]
) -> Any:
    """Views of what was given, and new tensors, which are written by a launch."""
    blocks = {address(x): x.block for x in given if isinstance(x, DeviceTensor)}
    new: list[Tensor] = []

    def wrapped(made: Tensor) -> Tensor:
        if (block := blocks.get(address(made))) is not None:
            return device_tensor(made, block)
        tensor = device_tensor(made, gpu.allocate(name, made.untyped_storage().nbytes()))
        new.append(tensor)
        return tensor

    whole = mapped(result, wrapped)
    if new:
        gpu.launch(name, run, [*used(given, writes=False), *used(new, writes=True)])
    return whole


def _recorded(
    func: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    plain_args: Any,
    plain_kwargs: Any,
    given: list[Tensor],
    changed: list[Tensor],
) -> Any:
    """In a capture nothing runs. Shapes come from torch's meta device, which has no values."""
    gpu = FakeGpu.of_thread()
    run: Callable[[], object] = lambda: func(*plain_args, **plain_kwargs)  # noqa: E731
    if changed:
        read = used([x for x in given if not any(x is y for y in changed)], writes=False)
        gpu.launch(name, run, [*used(changed, writes=True), *read])
        return kwargs.get("out", args[0])
    storages: dict[int, Tensor] = {}

    def on_meta(tensor: Tensor) -> Tensor:
        if tensor.device.type == "cpu" and not tensor.dim() and not _is_of_device(tensor, given):
            return tensor
        base = storages.get(address(tensor))
        if base is None:
            size = tensor.untyped_storage().nbytes()
            base = storages[address(tensor)] = torch.empty(size, dtype=torch.uint8, device="meta")
        made = torch.empty(0, dtype=tensor.dtype, device="meta")
        made.set_(base.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
        return made

    try:
        if "device" in plain_kwargs:
            shapes = func(*mapped(plain_args, on_meta), **plain_kwargs | {"device": "meta"})
        else:
            shapes = func(*mapped(plain_args, on_meta), **mapped(plain_kwargs, on_meta))
    except NotImplementedError as error:
        raise CudaError(f"{name} cannot be captured: its result depends on values") from error
    known = {address(base) for base in storages.values()}
    if all(address(x) in known for x in tensors_in(shapes)):
        return _finished(gpu, name, run(), given, lambda: None)  # a view, or no tensor

    def memory(shape: Tensor) -> Tensor:
        made = torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype)
        spoil(made)
        return made

    result = mapped(shapes, memory)
    targets = list(tensors_in(result))

    def again() -> None:
        for target, values in zip(targets, tensors_in(run()), strict=True):
            target.copy_(values)

    return _finished(gpu, name, result, given, again)


def _is_of_device(plain: Tensor, given: list[Tensor]) -> bool:
    return any(isinstance(x, DeviceTensor) and address(x) == address(plain) for x in given)


def _to(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for each in args:
        if isinstance(each, torch.device | str):
            device = each
        elif isinstance(each, torch.dtype):
            dtype = each
        elif isinstance(each, Tensor):
            device, dtype = _device(each), each.dtype
    kind = None if device is None else torch.device(device).type
    on_device = isinstance(tensor, DeviceTensor)
    if kind == "meta":
        return tensor.to(device="meta", dtype=dtype or tensor.dtype)
    if kind is None or (kind == "cuda") == on_device:
        if dtype is None or dtype == tensor.dtype:
            return tensor
        return called(torch.Tensor.type, (tensor, dtype), {})
    non_blocking = kwargs.get("non_blocking", False)
    gpu = FakeGpu.of_thread()
    memory = torch.empty_like(raw(tensor))
    made: Tensor = (
        device_tensor(memory, gpu.allocate("to", memory.nbytes)) if kind == "cuda" else memory
    )
    copied(made, tensor, non_blocking)
    return _to(made, dtype) if dtype is not None and dtype != made.dtype else made


def _device(tensor: Tensor) -> torch.device:
    if isinstance(tensor, DeviceTensor):
        return torch.device("cuda", tensor.block.gpu or 0)
    return _GETTERS.device.__get__(tensor)  # type: ignore[no-any-return]


class _Storage:
    """Of a `DeviceTensor`."""

    def __init__(self, tensor: DeviceTensor) -> None:
        self._tensor = tensor

    def resize_(self, size: int) -> None:
        FakeGpu.of_thread().allocated += size - self._tensor.block.nbytes
        self._tensor.block.nbytes = size
        raw(self._tensor).untyped_storage().resize_(size)

    def nbytes(self) -> int:
        return self._tensor.block.nbytes


def _untyped_storage(tensor: Tensor) -> Any:
    if isinstance(tensor, DeviceTensor):
        return _Storage(tensor)
    return tensor.untyped_storage()


_SPECIAL: dict[Any, Callable[..., Any]] = {
    _GETTERS.device.__get__: _device,
    _GETTERS.is_cuda.__get__: lambda x: isinstance(x, DeviceTensor),
    _GETTERS.is_cpu.__get__: lambda x: not isinstance(x, DeviceTensor) and x.device.type == "cpu",
    torch.Tensor.to: _to,
    torch.Tensor.cpu: lambda x: _to(x, "cpu"),
    torch.Tensor.cuda: lambda x: _to(x, "cuda"),
    torch.Tensor.copy_: copied,
    torch.Tensor.pin_memory: pin_memory,
    torch.Tensor.is_pinned: lambda x: not isinstance(x, DeviceTensor) and block_of(x) is not None,
    torch.Tensor.untyped_storage: _untyped_storage,
}
