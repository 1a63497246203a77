"""The fake GPU itself: it computes what torch does, and refuses what CUDA does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pando_worker.runner.cuda.capture import CudaCapture
from pando_worker.tensors.pinned import PinningFailed, pinned_empty
from pando_worker.tensors.transfer import HostCopy, to_device
from tests.worker.cuda.fake_gpu.device import FakeGpu
from tests.worker.cuda.fake_gpu.memory import CudaError
from tests.worker.cuda.fake_gpu.patches import fake_gpus

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def gpu() -> Iterator[FakeGpu]:
    gpu = FakeGpu()
    with fake_gpus(gpu), torch.inference_mode():
        yield gpu


def new_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def recorded() -> torch.cuda.Event:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape, device=GPU)


def host(tensor: Tensor) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return HostCopy(tensor).wait()


def test_tensors_say_where_they_are_and_compute_what_torch_does() -> None:
    x = to_device(np.arange(6, dtype=np.float32), GPU).view(2, 3)
    assert (x.device, x.is_cuda, x.is_cpu) == (GPU, True, False)
    y = torch.cat([x, x + 1])[1:, :2]
    y[0] = 9
    assert y.is_cuda and host(y).tolist() == [[9, 9], [1, 2], [4, 5]]
    assert host(x.max(dim=-1).indices).tolist() == [2, 2]
    assert np.isnan(host(torch.empty(2, device=GPU))).all(), "memory that nothing wrote"


def test_a_result_must_have_arrived_before_it_is_read() -> None:
    copy = HostCopy(ones(2))
    with pytest.raises(CudaError, match="the host reads pinned memory"):
        copy._host.numpy()
    assert copy.wait().tolist() == [1, 1]


def test_pinned_memory_may_be_written_again_after_its_copy_only() -> None:
    staging, x = torch.zeros(2, pin_memory=True), torch.empty(2, device=GPU)
    x.copy_(staging, non_blocking=True)
    with pytest.raises(CudaError, match="the host writes pinned memory"):
        staging.fill_(1)
    recorded().synchronize()
    staging.fill_(1)


def test_bytes_beside_those_in_use_are_free() -> None:
    staging, x = torch.zeros(4, pin_memory=True), torch.empty(2, device=GPU)
    x.copy_(staging[:2], non_blocking=True)
    staging[2:].fill_(1)
    with pytest.raises(CudaError, match="the host writes"):
        staging[1:3].fill_(1)


def test_another_stream_waits_for_an_event_before_it_uses_a_tensor() -> None:
    x, other = ones(2), new_stream()
    with torch.cuda.stream(other), pytest.raises(CudaError, match="stream 1 of GPU 0 reads"):
        x.sum()
    other.wait_event(recorded())
    with torch.cuda.stream(other):
        x.sum()
        x.fill_(2)
    with pytest.raises(CudaError, match="stream 0 of GPU 0 reads"):
        x.sum()
    torch.cuda.current_stream().wait_stream(other)
    assert host(x).tolist() == [2, 2]


def test_memory_is_not_freed_while_another_stream_uses_it(gpu: FakeGpu) -> None:
    x, other = ones(2), new_stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        y = x + 1
    del x
    with pytest.raises(CudaError, match="is freed while stream 1 of GPU 0 may use it"):
        gpu.check()
    assert y.is_cuda


def test_registered_memory_is_not_freed_during_a_copy(gpu: FakeGpu) -> None:
    memory = pinned_empty((4,), torch.float32)
    memory.copy_(ones(4), non_blocking=True)
    del memory
    with pytest.raises(CudaError, match="pinned memory is freed during copy_"):
        gpu.check()
    gpu.refused = 2
    with pytest.raises(PinningFailed, match="error 2"):
        pinned_empty((4,), torch.float32)


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.to("cpu", non_blocking=True),
        lambda x: x.copy_(torch.zeros(2), non_blocking=True),
        lambda x: x.__setitem__(0, torch.zeros(())),
        lambda x: torch.tensor([1.0], device=GPU),
        lambda x: torch.cuda.synchronize(),
        lambda x: torch.cuda.current_stream().synchronize(),
    ],
)
def test_what_waits_for_the_device_is_refused_within_steps_and_captures(
    wait: Callable[[Tensor], object], gpu: FakeGpu
) -> None:
    x = ones(2)
    with gpu.no_waits(), pytest.raises(CudaError, match="waits for the device within a step"):
        wait(x)
    wait(x)
    with pytest.raises(CudaError, match="not permitted while a stream is captured"):
        captured(lambda: wait(x))


@pytest.mark.parametrize(
    "call",
    [
        lambda: to_device(np.zeros(2), GPU),
        lambda: HostCopy(ones(2)),
        recorded,
        lambda: pinned_empty((4,), torch.float32),
    ],
)
def test_pinning_and_events_are_refused_in_captures(call: Callable[[], object]) -> None:
    call()
    with pytest.raises(CudaError, match="not permitted while a stream is captured"):
        captured(call)


def test_a_capture_waits_for_no_event_from_outside_and_uses_one_stream() -> None:
    event, other, x = recorded(), new_stream(), ones(1)
    with pytest.raises(CudaError, match="waits for an event from outside"):
        captured(lambda: torch.cuda.current_stream().wait_event(event))

    def in_another() -> Tensor:
        with torch.cuda.stream(other):
            return x + 1

    with pytest.raises(CudaError, match="another stream is used in a capture"):
        captured(in_another)


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        yield
    finally:
        graph.capture_end()


def captured(run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """Without the first run outside of the capture."""
    stream, graph = new_stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), capturing(graph):
        result = run()
    torch.cuda.synchronize()
    return graph.replay, result


def test_a_graph_runs_again_on_the_same_memory_and_a_capture_runs_nothing() -> None:
    x, total = ones(3), torch.zeros(3, device=GPU)

    def run() -> Tensor:
        total.add_(x)
        return (x[1:] * 2).contiguous() + total[:2]

    replay, result = captured(run)
    assert host(total).tolist() == [0, 0, 0] and np.isnan(host(result)).all()
    replay()
    assert host(result).tolist() == [3, 3]
    x.fill_(5)
    replay()
    assert host(total).tolist() == [6, 6, 6] and host(result).tolist() == [16, 16]


def test_a_graph_whose_memory_was_freed_is_not_replayed() -> None:
    held = [ones(2)]
    replay, _ = captured(lambda: held[0] + 1)
    replay()
    held.clear()
    with pytest.raises(CudaError, match="a graph uses memory that was freed"):
        replay()


def test_captures_of_the_engine_run_first_and_keep_what_they_made() -> None:
    x, calls = ones(2), []

    def run() -> Tensor:
        calls.append(1)
        return torch.where(x > 3, x, -x) + 1

    replay, result = CudaCapture()(run)
    assert len(calls) == 2
    x.fill_(4)
    replay()
    assert host(result).tolist() == [5, 5]


def test_tensors_of_the_host_and_of_the_gpu_do_not_mix() -> None:
    with pytest.raises(CudaError, match="tensors on the GPU and on the host"):
        ones(2) + torch.ones(2)
    assert host(ones(2) + torch.ones(())).tolist() == [2, 2]


def test_memory_is_counted(gpu: FakeGpu) -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = ones(256)
    y = x.view(2, 128)[:1]
    del x
    assert torch.cuda.memory_allocated() == before + 1024, "a view keeps it"
    del y
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() == before + 1024
