"""Engines around a loaded model that sees."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pando_worker.attention.device_pages import Padding
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.rates import Rate
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.threaded import ThreadedRunner
from pando_worker.settings import WorkerSettings
from tests.worker.cuda.test_cuda_graph import CPU, Fixed, repeat
from tests.worker.scheduler.world import World
from tests.worker.vision.checkpoints import Seer

PAGE_SIZE = 4

Worlds = Callable[..., World]


@contextmanager
def engines_with(seer: Seer, *, graphs: bool = False, **settings: Any) -> Iterator[Worlds]:
    """Makes engines that share one loaded model.

    Args:
        graphs: whether decodes run as by CUDA graphs; the last page is for padding then, and the
            last window page
    """
    runner = TorchModelRunner(
        WorkerSettings.model_validate(
            {
                "model": str(seer.path),
                "page_size": PAGE_SIZE,
                "max_total_tokens": 1024,
                "host_memory_gib": 0.001,
                # So few that models with windows release the pages behind them.
                "chunked_prefill_size": 48,
                "threads": 1,
                "cpu_kernels": "off",
                **settings,
            }
        )
    )
    loaded = runner.pools
    if graphs:
        assert isinstance(runner.attention, TorchAttention)
        padding = Padding(
            runner.capacity_tokens // PAGE_SIZE - 1,
            loaded.window_pages - 1 if loaded.window else None,
        )
        runner.graphs = CudaGraphRunner(
            runner._model,
            Fixed(runner.attention, padding),
            runner._futures,
            GraphInputs(4, CPU, None),
            sizes=[1, 2, 4],
            capture=repeat,
        )
    threaded = ThreadedRunner(runner)

    def world(
        *, pages: int = 256, image_tokens: int = 1000, host: bool = False, **changes: Any
    ) -> World:
        pools = replace(
            loaded,
            capacity_tokens=pages * PAGE_SIZE,
            window_pages=loaded.window_pages - (graphs and loaded.window > 0),
            image_tokens=image_tokens,
            host_pages=loaded.host_pages if host else 0,
            copy_rate=Rate(),  # unknown, so that copies are never too slow
        )
        overlap = changes.get("overlap_schedule", True)
        return World(
            page_size=PAGE_SIZE, runner=threaded if overlap else runner, pools=pools, **changes
        )

    yield world
    threaded.close()
