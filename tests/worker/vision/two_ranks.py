"""An engine on two ranks: the first one in the tests' process, the other as the worker runs it, but
forked from a server that has torch and transformers loaded, which take seconds to import."""

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch.distributed
import zmq
from torch import Tensor

from pando_worker.batch import PixelValues
from pando_worker.models.transformers_backend.tower import VisionTower
from pando_worker.ranks.follower import batch_endpoint, run_follower
from pando_worker.ranks.group import join
from pando_worker.ranks.leader import LeadingRunner
from pando_worker.rates import Rate
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.scheduler.world import World
from tests.worker.vision.engines import PAGE_SIZE

Follow = Callable[[WorkerSettings, int, Path, Callable[[], None]], None]


@contextmanager
def on_two_ranks(model: Path, follow: Follow = run_follower) -> Iterator[World]:
    """
    Args:
        follow: runs the second rank
    """
    settings = WorkerSettings.model_validate(
        {
            "model": str(model),
            "page_size": PAGE_SIZE,
            "max_total_tokens": 1024,
            "chunked_prefill_size": 24,
            "threads": 2,
            "tensor_parallel_size": 2,
            "cpu_kernels": "off",
        }
    )
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([__name__])
    context = zmq.Context()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        process = forks.Process(target=follow, args=(settings, 1, directory, _silent), daemon=True)
        process.start()
        try:
            batches = context.socket(zmq.PUSH)
            batches.connect(batch_endpoint(directory, 1))
            runner = TorchModelRunner(settings, join(settings, 0, directory))
            yield World(
                page_size=PAGE_SIZE,
                runner=LeadingRunner(runner, [batches]),
                pools=replace(runner.pools, copy_rate=Rate(), host_pages=0),
                chunked_prefill_size=24,
                overlap_schedule=False,
            )
        finally:
            process.kill()
            process.join()
            context.destroy(linger=0)
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()


def follow_with_a_fault(
    settings: WorkerSettings, rank: int, directory: Path, configure_logging: Callable[[], None]
) -> None:
    """A rank whose tower encodes one image, the trial's, and fails on any other."""
    encode = VisionTower.encode
    done = 0

    def faulty(tower: VisionTower, images: Sequence[PixelValues]) -> list[Tensor]:
        nonlocal done
        done += 1
        if done > 1:
            raise RuntimeError("an injected fault")
        return encode(tower, images)

    VisionTower.encode = faulty  # type: ignore[assignment,method-assign]
    run_follower(settings, rank, directory, configure_logging)


def _silent() -> None:
    pass
