"""Engines around a loaded encoder-decoder."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pando_worker.messages import Generate, SamplingParams
from pando_worker.rates import Rate
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.threaded import ThreadedRunner
from pando_worker.settings import WorkerSettings
from tests.worker.encoder_decoder.checkpoints import Inputs, sent
from tests.worker.scheduler.grammars import GrammarsForTests
from tests.worker.scheduler.world import World

PAGE_SIZE = 4

Worlds = Callable[..., World]


@contextmanager
def engines_of(path: Path, **settings: Any) -> Iterator[Worlds]:
    """Makes engines that share one loaded model."""
    runner = TorchModelRunner(
        WorkerSettings.model_validate(
            {
                "model": str(path),
                "page_size": PAGE_SIZE,
                "max_total_tokens": 1024,
                "host_memory_gib": 0.001,
                "threads": 1,
                "cpu_kernels": "off",
                **settings,
            }
        )
    )
    loaded = runner.pools
    threaded = ThreadedRunner(runner)

    def world(*, pages: int = 256, host: bool = False, **changes: Any) -> World:
        pools = replace(
            loaded,
            capacity_tokens=pages * PAGE_SIZE,
            host_pages=loaded.host_pages if host else 0,
            copy_rate=Rate(),  # unknown, so that copies are never too slow
        )
        overlap = changes.get("overlap_schedule", True)
        grammars = GrammarsForTests()
        assert pools.source is not None
        grammars.vocab_size = pools.source.vocab_size
        return World(
            page_size=PAGE_SIZE,
            runner=threaded if overlap else runner,
            pools=pools,
            grammars=grammars,
            **changes,
        )

    yield world
    threaded.close()


def ask(
    world: World, rid: str, source: Inputs, prompt: Sequence[int], count: int, **fields: Any
) -> None:
    world.tokens[rid] = []
    sampling = fields.pop("sampling", {})
    command = Generate(
        rid=rid,
        input_ids=list(prompt),
        sampling=SamplingParams(max_new_tokens=count, **{"temperature": 0, **sampling}),
        source=sent(source),
        **fields,
    )
    world.collect(world.scheduler.receive(command))
