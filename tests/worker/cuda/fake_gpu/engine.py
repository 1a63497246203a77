"""A whole engine on fake GPUs."""

import functools
import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pando_worker.attention.flashinfer import backend as flashinfer_backend
from pando_worker.attention.flashinfer import graphs as flashinfer_graphs
from pando_worker.cuda import fp8, nucleus, ops, sum_norm
from pando_worker.models.lora.linear import LoraMemory, PackedAdapter
from pando_worker.ranks.follower import follow
from pando_worker.ranks.leader import LeadingRunner
from pando_worker.ranks.page_tables import RankPageTables
from pando_worker.runner.cuda import cuda_path
from pando_worker.runner.kv.host_pool import HostKVPool
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.cuda.fake_gpu import kernels, triton_kernels
from tests.worker.cuda.fake_gpu.device import FakeGpu
from tests.worker.cuda.fake_gpu.engine_world import (
    PAGE_SIZE,
    CheckedRunner,
    settings_for,
    world_for,
)
from tests.worker.cuda.fake_gpu.memory import Clock
from tests.worker.cuda.fake_gpu.patches import fake_gpus, on_gpu
from tests.worker.scheduler.world import World

_PUT = LoraMemory.put


@dataclass(frozen=True)
class Engine:
    """A model runner on a fake GPU, for any number of schedulers one after another.

    Attributes:
        gpu: of rank 0
    """

    settings: WorkerSettings
    runner: TorchModelRunner
    gpu: FakeGpu
    checked: Any

    def world(self) -> World:
        self.gpu.wait_for_all("another scheduler starts")
        return world_for(self.settings, self.runner, self.checked)


@contextmanager
def fake_engine(
    model: Path,
    *,
    ranks: int = 1,
    seed: int = 0,
    shared_bytes: int = 2**40,
    lacks: str | None = None,
    capability: tuple[int, int] = (8, 0),
    **settings: Any,
) -> Iterator[Engine]:
    """
    Args:
        shared_bytes: rows attend together if that saves reading so much
        lacks: what the machine lacks to compile flashinfer's kernels
    """
    gpus = [FakeGpu(index, seed) for index in range(ranks)]
    asked = settings_for(model, tensor_parallel_size=ranks, **settings)
    meeting = kernels.Meeting(ranks)
    with ExitStack() as stack:
        stack.enter_context(_kernels(gpus, shared_bytes, lacks))
        stack.enter_context(fake_gpus(*gpus, capability=capability))
        others = [_Follower(asked, gpus[0], gpu, ranks, meeting) for gpu in gpus[1:]]
        try:
            runner = TorchModelRunner(asked, kernels.Ranks(0, ranks, meeting))
            checked: Any = CheckedRunner(runner, gpus[0].no_waits)
            if others:
                checked = leading = LeadingRunner(checked, others)  # type: ignore[arg-type]
                if runner.adapters is not None:
                    runner.adapters.send = leading.send_adapter
            yield Engine(asked, runner, gpus[0], checked)
            torch.cuda.synchronize()
        except BaseException:
            meeting.leave()
            raise
        finally:
            for other in others:
                other.end()
        for gpu in gpus:
            gpu.check()


class _Follower:
    """Another rank, in a thread: the end of a socket that `LeadingRunner` writes to."""

    def __init__(
        self,
        settings: WorkerSettings,
        leader: FakeGpu,
        gpu: FakeGpu,
        ranks: int,
        meeting: kernels.Meeting,
    ) -> None:
        self._leader = leader
        self._received: queue.Queue[tuple[Clock, list[Any]] | None] = queue.Queue()
        self._failure: list[BaseException] = []

        def messages() -> Iterator[list[Any]]:
            while (received := self._received.get()) is not None:
                gpu.host.after(received[0])
                yield received[1]

        def run() -> None:
            try:
                runner = TorchModelRunner(settings, kernels.Ranks(gpu.index, ranks, meeting))
                rows, length = settings.max_running_requests, runner.context_length
                tables = RankPageTables(rows, length, PAGE_SIZE)
                follow(CheckedRunner(runner, gpu.no_waits), runner.lora, tables, messages())
                torch.cuda.synchronize()
            except BaseException as error:
                self._failure.append(error)
                meeting.leave()

        self._thread = threading.Thread(target=on_gpu(gpu, run), name=f"rank {gpu.index}")
        self._thread.start()

    def send(self, data: bytes) -> None:
        self.send_multipart([data])

    def send_multipart(self, parts: list[Any], copy: bool = True) -> None:
        frames = [SimpleNamespace(buffer=memoryview(bytes(part))) for part in parts]
        # What rank 0 has seen comes before what this rank does next.
        self._received.put((dict(self._leader.host.seen), frames))

    def end(self) -> None:
        self._received.put(None)
        self._thread.join(120)
        if self._failure and not isinstance(self._failure[0], threading.BrokenBarrierError):
            raise self._failure[0]


@contextmanager
def _kernels(gpus: list[FakeGpu], shared_bytes: int, lacks: str | None) -> Iterator[None]:
    """What launches kernels launches those of this package."""
    modules = {
        "flashinfer": kernels.Library,
        "flashinfer.comm": kernels.Comm,
        "flashinfer.gemm": kernels.Library,
        "flashinfer.sampling": kernels.Library,
        "pando_worker.cuda.expert_product": triton_kernels,
        "pando_worker.cuda.fp8_quantize": triton_kernels,
        "pando_worker.cuda.fused_experts": triton_kernels,
        "pando_worker.cuda.kv_store": triton_kernels,
        "pando_worker.cuda.lora": kernels,
        "pando_worker.cuda.page_lists": triton_kernels,
        "pando_worker.cuda.sampling": triton_kernels,
        "pando_worker.cuda.turn_heads": triton_kernels,
    }

    @functools.wraps(_PUT)
    def put_in_any_thread(
        self: LoraMemory,
        slot: int,
        pages: list[int],
        adapter: PackedAdapter,
    ) -> None:
        gpu = gpus[self.pages.device.index]
        on_gpu(gpu, _PUT)(self, slot, pages, adapter)

    with pytest.MonkeyPatch.context() as patch:
        for chooser in (cuda_path, fp8):
            patch.setattr(chooser, "missing_for_flashinfer", lambda: lacks)
            patch.setattr(chooser, "missing_for_triton", lambda: None)
        for module in (ops, nucleus, fp8, sum_norm, cuda_path):
            patch.setattr(module, "import_module", modules.__getitem__)
        patch.setattr(flashinfer_backend, "Library", lambda: kernels.Library)
        patch.setattr(flashinfer_backend, "CASCADE_BYTES", shared_bytes)
        patch.setattr(flashinfer_graphs, "CASCADE_BYTES", shared_bytes)
        patch.setattr(LoraMemory, "put", put_in_any_thread)
        # Of one page in each buffer, so that they are taken again and again.
        patch.setitem(HostKVPool.__init__.__kwdefaults__ or {}, "staging_bytes", 1)
        threads = torch.get_num_threads()
        yield
        torch.set_num_threads(threads)
