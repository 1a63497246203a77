"""A tiny model for many worlds, loaded once, with one runner."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pando_worker.messages import Generate, LogprobsWanted, SamplingParams
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.threaded import ThreadedRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference
from tests.worker.scheduler.world import World

MAX_TOKENS = 1024
SHIPPED = Path(__file__).parents[3] / "examples/models/pando-tiny"


@dataclass(frozen=True)
class Asked:
    rid: str
    prompt: list[int]
    sampling: SamplingParams
    logprobs: LogprobsWanted | None = None
    grammar: str | None = None


class Served:
    def __init__(self, path: Path, page_size: int, **shape: Any) -> None:
        self.reference = Reference(path, **shape)
        self.page_size = page_size
        self._runner = TorchModelRunner(
            WorkerSettings(
                model=str(path),
                page_size=page_size,
                max_total_tokens=MAX_TOKENS,
                threads=1,
                cpu_kernels="off",
            )
        )
        self._threaded = ThreadedRunner(self._runner)

    def world(self, tokens: int, *, overlap: bool, **settings: Any) -> World:
        """An engine whose pool has room for this many tokens. The pool's memory still has the
        contents that earlier worlds left."""
        return World(
            pages=tokens // self.page_size,
            page_size=self.page_size,
            runner=self._threaded if overlap else self._runner,
            overlap_schedule=overlap,
            **settings,
        )

    def close(self) -> None:
        self._threaded.close()


def ask(world: World, requests: Sequence[Asked]) -> None:
    for asked in requests:
        world.tokens[asked.rid] = []
        command = Generate(
            rid=asked.rid,
            input_ids=asked.prompt,
            sampling=asked.sampling,
            logprobs=asked.logprobs,
            grammar=asked.grammar,
        )
        world.collect(world.scheduler.receive(command))


def lend_tokenizer(path: Path) -> int:
    """Copy the shipped model's tokenizer to another model's folder; returns its vocab_size."""
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(SHIPPED / name, path)
    size: int = json.loads((SHIPPED / "config.json").read_text())["vocab_size"]
    return size
