"""`torch.cuda` on a `FakeGpu`."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar

import pytest
import torch

from tests.worker.cuda.fake_gpu.device import Event, FakeGpu, Graph
from tests.worker.cuda.fake_gpu.functions import OnGpu

MULTIPROCESSORS = 132
P = ParamSpec("P")
T = TypeVar("T")


def on_gpu(gpu: FakeGpu, run: Callable[P, T]) -> Callable[P, T]:
    """`run` for a thread of its own."""

    @functools.wraps(run)
    def inner(*args: P.args, **kwargs: P.kwargs) -> T:
        with gpu.in_thread(), OnGpu():
            return run(*args, **kwargs)

    return inner


@contextmanager
def fake_gpus(*gpus: FakeGpu, capability: tuple[int, int] = (9, 0)) -> Iterator[None]:
    """These are the machine's GPUs. The first is this thread's."""

    def current() -> FakeGpu:
        return FakeGpu.of_thread()

    def set_device(device: torch.device) -> None:
        gpus[device.index or 0].use_in_thread()

    def cudart() -> Any:
        return SimpleNamespace(
            cudaHostRegister=lambda address, size, flags: current().register(address, size),
            cudaHostUnregister=current().unregister,
            cudaError=int,
            cudaGetErrorString=lambda error: f"error {error}",
        )

    doubles: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: len(gpus),
        "set_device": set_device,
        "current_device": lambda: current().index,
        "Stream": lambda device=None: current().new_stream(),
        "Event": Event,
        "current_stream": lambda device=None: current().stream,
        "stream": lambda stream: current().using(stream),
        "synchronize": lambda device=None: current().wait_for_all("the device is synchronized"),
        "mem_get_info": lambda device=None: (
            current().total_bytes - current().allocated,
            current().total_bytes,
        ),
        "memory_allocated": lambda device=None: current().allocated,
        "memory_reserved": lambda device=None: current().allocated,
        "max_memory_allocated": lambda device=None: current().peak,
        "reset_peak_memory_stats": lambda device=None: setattr(
            current(), "peak", current().allocated
        ),
        "empty_cache": lambda: None,
        "get_device_properties": lambda device=None: SimpleNamespace(
            multi_processor_count=MULTIPROCESSORS
        ),
        "get_device_name": lambda device=None: "a fake GPU",
        "get_device_capability": lambda device=None: capability,
        "graph_pool_handle": object,
        "CUDAGraph": Graph,
        "cudart": cudart,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, double in doubles.items():
            patch.setattr(torch.cuda, name, double)
        patch.setattr(torch.version, "cuda", "13.0")
        with gpus[0].in_thread(), OnGpu():
            yield
