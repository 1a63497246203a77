"""Streams and events that run on the CPU later, in any order that CUDA would allow.

Operations on tensors are kept in the queue of the current stream instead of being run. `FakeCuda`
runs a few of them now and then, from a stream chosen at random, so that code that does not wait
where it must reads or overwrites the wrong values.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

# They only make tensors, and read none.
_FACTORIES = ("empty", "new_empty", "empty_like", "empty_strided")


class _Mark:
    is_reached = False


class Stream:
    def __init__(self, cuda: "FakeCuda", name: str) -> None:
        self.cuda, self.name = cuda, name
        self.queue: deque[Callable[[], object] | _Mark] = deque()
        self.is_deaf = False  # a mutation: it waits for nothing

    def wait_event(self, event: "Event") -> None:
        if event.mark is not None and not self.is_deaf:
            self.queue.append(event.mark)

    @property
    def is_ready(self) -> bool:
        return bool(self.queue) and getattr(self.queue[0], "is_reached", True)

    def step(self) -> None:
        if not isinstance(head := self.queue.popleft(), _Mark):
            with _disable_current_modes(), torch.inference_mode():
                head()

    def run(self) -> None:
        """As far as it need not wait."""
        while self.is_ready:
            self.step()


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.mark: _Mark | None = None
        self.enable_timing = enable_timing

    def record(self, stream: Stream) -> None:
        mark = self.mark = _Mark()

        def reach() -> None:
            mark.is_reached = True

        stream.queue.append(reach)

    def query(self) -> bool:
        return self.mark is None or self.mark.is_reached

    def elapsed_time(self, end: "Event") -> float:
        """Of milliseconds."""
        assert self.enable_timing and end.enable_timing and end.query()
        return 1.0


class FakeCuda:
    """
    Attributes:
        streams: by the order of their creation; the first is the model's
        registered: bytes of pinned memory by address
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.streams: list[Stream] = []
        self.registered: dict[int, int] = {}
        self.error = 0  # of the next registration
        self.current = self.new_stream()

    def new_stream(self, device: Any = None) -> Stream:
        self.streams.append(Stream(self, f"stream {len(self.streams)}"))
        return self.streams[-1]

    @contextmanager
    def using(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def run(self, steps: int) -> None:
        """Run so many operations, or all that there are."""
        for _ in range(steps):
            ready = [stream for stream in self.streams if stream.is_ready]
            if not ready:
                assert not any(stream.queue for stream in self.streams), "deadlock"
                return
            self.random.choice(ready).step()

    def cudart(self) -> Any:
        def register(address: int, size: int, flags: int) -> int:
            if not self.error:
                self.registered[address] = size
            return self.error

        return SimpleNamespace(
            cudaHostRegister=register,
            cudaHostUnregister=self.registered.pop,
            cudaError=int,
            cudaGetErrorString=lambda error: f"error {error}",
        )


class Deferred(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps operations in the queue of `cuda`'s current stream."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cuda = cuda

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        returns = [r.alias_info for r in func._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in returns)
        if is_view or func._opname in _FACTORIES:
            return func(*args, **kwargs)
        queue = self._cuda.current.queue
        if func._schema.is_mutable:
            queue.append(lambda: func(*args, **kwargs))
            return args[0]
        result = func(*args, **kwargs)  # for its shape; its values may be wrong
        assert isinstance(result, torch.Tensor)
        queue.append(lambda: result.copy_(func(*args, **kwargs)))
        return result


@contextmanager
def fake_cuda(seed: int) -> Iterator[FakeCuda]:
    """torch.cuda's streams, events and registration of memory are those of a `FakeCuda`."""
    cuda = FakeCuda(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "Stream", cuda.new_stream)
        patch.setattr(torch.cuda, "Event", Event)
        patch.setattr(torch.cuda, "current_stream", lambda device=None: cuda.current)
        patch.setattr(torch.cuda, "stream", cuda.using)
        patch.setattr(torch.cuda, "cudart", cuda.cudart)
        yield cuda
