"""Counts the memory of tensors that live at once, on a CPU: what a GPU's allocator would give."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """
    Attributes:
        live: bytes of storages that were made while the mode was on, and are still alive
        peak: the most so far
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = {
            x.untyped_storage().data_ptr()
            for x in tree_leaves((args, kwargs))
            if isinstance(x, torch.Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if (address := storage.data_ptr()) not in given and address not in self._known:
                    self._known[address] = storage.nbytes()
                    self.live += storage.nbytes()
                    weakref.finalize(storage, self._free, address)
        self.peak = max(self.peak, self.live)
        return result

    def _free(self, address: int) -> None:
        self.live -= self._known.pop(address)


def peak_bytes(run: Callable[[], object]) -> int:
    """The most memory that `run` holds at once, beyond what there was before."""
    with LiveMemory() as memory:
        run()
        return int(memory.peak)
